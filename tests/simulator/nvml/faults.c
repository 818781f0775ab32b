/*
 * SPDX-FileCopyrightText: The inferops.sglang authors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Failures and hangs on request.
 */
#include "state.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/*
 * Number of this call among those that the rule saw, from 0.  Counted over all processes of the simulated host (a
 * reader may use a new process for each query), as the size of a file that grows by a byte a call.
 */
static long call_number(const struct rule *rule) {
    char path[700];
    snprintf(path, sizeof path, "%s/calls/%s.%s.%d", state_folder(), rule->what == RULE_HANG ? "hang" : "fail",
             rule->function, rule->gpu);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0)
        return 0;
    struct stat before = {0};
    flock(file, LOCK_EX);
    fstat(file, &before);
    long number = write(file, ".", 1) == 1 ? (long)before.st_size : 0;
    close(file);
    return number;
}

static int applies(const struct rule *rule, const char *function, int gpu, int instance) {
    if ((rule->gpu != ANY_GPU && rule->gpu != gpu) || (rule->whole && instance))
        return 0;
    if (fnmatch(rule->function, function, 0) != 0)
        return 0;
    if (rule->after == 0 && rule->times < 0)
        return 1;
    long number = call_number(rule);
    return number >= rule->after && (rule->times < 0 || number < rule->after + rule->times);
}

/* A call stuck in the driver does not react to signals; only SIGKILL ends this one, which the real one may survive. */
static void hang(double seconds) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    struct timespec left = {.tv_sec = 3600};
    if (seconds >= 0) {
        left.tv_sec = (time_t)seconds;
        left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
    }
    do
        nanosleep(&left, NULL);
    while (seconds < 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

nvmlReturn_t faults_apply(const struct state *state, const char *function, int gpu, int instance) {
    nvmlReturn_t code = NVML_SUCCESS;
    for (int i = 0; i < state->rules; i++) {
        const struct rule *rule = &state->rule[i];
        if (!applies(rule, function, gpu, instance))
            continue;
        if (rule->what == RULE_HANG)
            hang(rule->seconds);
        else if (code == NVML_SUCCESS)
            code = rule->code;
    }
    return code;
}
