/*
 * SPDX-FileCopyrightText: The inferops.sglang authors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Memory that follows real processes.  alloc/<gpu>.<pid>.<n>-<namespace> is one allocation, text "MIB KIND NAME",
 * where KIND is a letter, with "@GI/CI" behind it where the memory is that of a MIG instance.  Its owner
 * keeps a shared flock on an open description of the file, so the allocation lives exactly as long as any process
 * keeps that description: a forked child that inherited it, a mapping whose descriptor was closed.  That is what
 * the driver does too, which is why a dead parent can stay in NVML's list.
 *
 * The kernel does not say when the last holder went. So owners touch their file ten times a second, and whoever
 * sees it locked does too: its time of modification is when it was last known to be held. The first call that finds
 * it unlocked stamps it with that moment, by renaming it to <name>@<nanoseconds>, and the release delay runs from
 * there, however long nobody looked.
 */
#include "state.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static long long nanoseconds(struct timespec time) {
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static long long now_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return nanoseconds(now);
}

/* When the file was last known to be held, on the monotonic clock. */
static long long last_held(int file, long long now) {
    struct stat status;
    if (fstat(file, &status) != 0)
        return now;
    long long age = now_ns(CLOCK_REALTIME) - nanoseconds(status.st_mtim);
    return age > 0 ? now - age : now;
}

/*
 * Decide whether the allocation still counts.  Renaming is what makes this safe under concurrent callers: whoever
 * comes second finds the stamped name at the next call, and until then reports what was true a moment ago.
 */
static int still_counts(const struct state *state, int folder, int file, const char *name, long long now) {
    const char *stamp = strchr(name, '@');
    if (!stamp && flock(file, LOCK_EX | LOCK_NB) != 0) {
        futimens(file, NULL);
        return 1;
    }
    long long over = stamp ? atoll(stamp + 1) : last_held(file, now);
    if (now - over >= (long long)(state->release_delay * 1e9)) {
        unlinkat(folder, name, 0);
        return 0;
    }
    if (!stamp) {
        char stamped[300];
        snprintf(stamped, sizeof stamped, "%s@%lld", name, over);
        renameat(folder, name, folder, stamped);
    }
    return 1;
}

/* Count a row in the MIG instance that it is in. */
static void add_to_instance(struct state *state, const struct process *row) {
    for (int i = 0; i < state->instances; i++) {
        struct instance *instance = &state->instance[i];
        if (instance->gpu == row->gpu && instance->gi == row->gi && instance->ci == row->ci)
            instance->used += row->mib;
    }
}

/*
 * The driver gives each caller the PIDs of the caller's namespace, and leaves processes out that have none there;
 * their memory counts all the same.  A name without a namespace holds a PID as it is to be listed.
 */
static void translate_pid(struct process *row, const char *name) {
    const char *namespace = strchr(name, '-');
    if (namespace && strtoul(namespace + 1, NULL, 10) != pid_namespace("self")) {
        row->pid = pid_in_our_namespace(strtoul(namespace + 1, NULL, 10), row->pid);
        if (!row->pid)
            row->kind = 'H';
    }
}

void allocations_collect(struct state *state) {
    char path[512];
    snprintf(path, sizeof path, "%s/alloc", state_folder());
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return;
    /* All names first: a file that is renamed while the folder is read could be met twice, or not at all. */
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, NULL, NULL);
    long long now = now_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < count; i++) {
        struct process row = {.gi = NVML_NO_INSTANCE, .ci = NVML_NO_INSTANCE};
        const char *name = entries[i]->d_name;
        /* Names that start with a dot are files that their owner has not finished writing. */
        if (sscanf(name, "%d.%u.", &row.gpu, &row.pid) != 2)
            continue;
        int file = openat(folder, name, O_RDONLY | O_CLOEXEC);
        if (file < 0)
            continue;
        char text[256] = "";
        if (read(file, text, sizeof text - 1) > 0 &&
            sscanf(text, "%lld %c@%u/%u", &row.mib, &row.kind, &row.gi, &row.ci) >= 2 &&
            still_counts(state, folder, file, name, now)) {
            translate_pid(&row, name);
            state_add_process(state, row);
            add_to_instance(state, &row);
        }
        close(file);
    }
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    close(folder);
}
