/*
 * SPDX-FileCopyrightText: The inferops.sglang authors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Lets a program go on where it may not raise a limit.  Where the machine that runs the test hosts is itself confined
 * (without CAP_SYS_RESOURCE), an OCI runtime could start no container: it raises the limit of locked memory for its own
 * use, and those of the container as it is told.  With the capability this changes nothing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/resource.h>

static int allowed(int result) { return result && errno == EPERM ? 0 : result; }

int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit) {
    int (*real)(__rlimit_resource_t, const struct rlimit *);
    *(void **)&real = dlsym(RTLD_NEXT, "setrlimit");
    return allowed(real(resource, limit));
}

int setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *limit) {
    int (*real)(__rlimit_resource_t, const struct rlimit64 *);
    *(void **)&real = dlsym(RTLD_NEXT, "setrlimit64");
    return allowed(real(resource, limit));
}
