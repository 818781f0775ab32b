/*
 * SPDX-FileCopyrightText: The inferops.sglang authors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Reading the configuration file.
 */
#include "state.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct state current;

const char *state_folder(void) {
    const char *folder = getenv("FAKEGPU_DIR");
    return folder && *folder ? folder : "/run/fakegpu";
}

static void copy(char *to, size_t size, const char *from) {
    snprintf(to, size, "%s", from);
}

/* "key=value" pairs up to the end of the line; the last one may be name=..., which takes the rest of the line. */
static void parse_gpu(struct state *state, const char *line) {
    int index, offset;
    if (sscanf(line, "gpu %d%n", &index, &offset) != 1 || index < 0 || index >= MAX_GPUS)
        return;
    struct gpu *gpu = &state->gpu[index];
    memset(gpu, 0, sizeof *gpu);
    gpu->present = 1;
    gpu->minor = (unsigned)index;
    gpu->persistence = 1;
    gpu->capability = 90;
    if (index >= state->gpus)
        state->gpus = index + 1;
    const char *name = strstr(line, " name=");
    if (name)
        copy(gpu->name, sizeof gpu->name, name + 6);
    char pairs[900];
    copy(pairs, sizeof pairs, line + offset);
    if (name)
        pairs[name - (line + offset)] = '\0';
    char *rest;
    for (char *pair = strtok_r(pairs, " ", &rest); pair; pair = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(pair, '=');
        if (!value)
            continue;
        *value++ = '\0';
        long long number = strtoll(value, NULL, 10);
        if (!strcmp(pair, "uuid"))
            copy(gpu->uuid, sizeof gpu->uuid, value);
        else if (!strcmp(pair, "bus"))
            copy(gpu->bus, sizeof gpu->bus, value);
        else if (!strcmp(pair, "serial"))
            copy(gpu->serial, sizeof gpu->serial, value);
        else if (!strcmp(pair, "total"))
            gpu->total = number;
        else if (!strcmp(pair, "reserved"))
            gpu->reserved = number;
        else if (!strcmp(pair, "base"))
            gpu->base = number;
        else if (!strcmp(pair, "minor"))
            gpu->minor = (unsigned)number;
        else if (!strcmp(pair, "persistence"))
            gpu->persistence = (unsigned)number;
        else if (!strcmp(pair, "mig"))
            gpu->mig = (unsigned)number;
        else if (!strcmp(pair, "recovery"))
            gpu->recovery = (unsigned)number;
        else if (!strcmp(pair, "utilization"))
            gpu->utilization = (unsigned)number;
        else if (!strcmp(pair, "display"))
            gpu->display = (unsigned)number;
        else if (!strcmp(pair, "capability"))
            gpu->capability = (unsigned)number;
        else if (!strcmp(pair, "virtualization"))
            gpu->virtualization = (unsigned)number;
        else if (!strcmp(pair, "fabric"))
            gpu->fabric = (unsigned)number;
        else if (!strcmp(pair, "links"))
            copy(gpu->links, sizeof gpu->links, value);
    }
}

static void parse_instance(struct state *state, const char *line) {
    struct instance row = {0};
    if (state->instances == MAX_INSTANCES || sscanf(line, "mig %d %d %95s %lld %lld %u %u", &row.gpu, &row.index, row.uuid,
                                                    &row.total, &row.used, &row.gi, &row.ci) != 7)
        return;
    state->instance[state->instances++] = row;
}

static void parse_process(struct state *state, const char *line) {
    struct process row = {.gi = NVML_NO_INSTANCE, .ci = NVML_NO_INSTANCE, .kind = 'C'};
    if (sscanf(line, "proc %d %u %lld %c %u %u", &row.gpu, &row.pid, &row.mib, &row.kind, &row.gi, &row.ci) >= 3)
        state_add_process(state, row);
}

static void parse_rule(struct state *state, const char *line) {
    struct rule rule = {.times = -1};
    char kind[16], gpu[16], value[32];
    int offset = 0;
    if (state->rules == MAX_RULES)
        return;
    if (sscanf(line, "missing %95s", rule.function) == 1) {
        rule.what = RULE_FAIL;
        rule.gpu = ANY_GPU;
        rule.code = NVML_ERROR_FUNCTION_NOT_FOUND;
        state->rule[state->rules++] = rule;
        return;
    }
    if (sscanf(line, "%15s %95s %15s %31s%n", kind, rule.function, gpu, value, &offset) != 4)
        return;
    rule.gpu = *gpu == '*' ? ANY_GPU : atoi(gpu);
    rule.whole = strstr(gpu, "/whole") != NULL;
    if (!strcmp(kind, "fail")) {
        rule.what = RULE_FAIL;
        rule.code = atoi(value);
    } else {
        rule.what = RULE_HANG;
        rule.seconds = strcmp(value, "forever") ? atof(value) : -1.0;
    }
    char words[128], *rest;
    copy(words, sizeof words, line + offset);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *number = strtok_r(NULL, " ", &rest);
        if (!number)
            break;
        if (!strcmp(word, "after"))
            rule.after = atol(number);
        else if (!strcmp(word, "times"))
            rule.times = atol(number);
    }
    state->rule[state->rules++] = rule;
}

static void parse_line(struct state *state, char *line) {
    line[strcspn(line, "\r\n")] = '\0';
    char key[32] = "";
    sscanf(line, "%31s", key);
    if (!strcmp(key, "gpu"))
        parse_gpu(state, line);
    else if (!strcmp(key, "mig"))
        parse_instance(state, line);
    else if (!strcmp(key, "proc"))
        parse_process(state, line);
    else if (!strcmp(key, "fail") || !strcmp(key, "hang") || !strcmp(key, "missing"))
        parse_rule(state, line);
    else if (!strcmp(key, "drop_foreign"))
        state->drop_foreign = 1;
    else if (sscanf(line, "driver %79s", state->driver) == 1 || sscanf(line, "nvml %79s", state->nvml) == 1 ||
             sscanf(line, "cuda %d", &state->cuda) == 1 || sscanf(line, "init %d", &state->init) == 1 ||
             sscanf(line, "count %d", &state->count) == 1 ||
             sscanf(line, "release_delay %lf", &state->release_delay) == 1)
        return;
}

struct state *state_load(void) {
    struct state *state = &current;
    char path[512], line[1024];
    snprintf(path, sizeof path, "%s/config", state_folder());
    FILE *file = fopen(path, "re");
    if (!file)
        return NULL;
    memset(state, 0, sizeof *state);
    copy(state->driver, sizeof state->driver, "580.159.04");
    copy(state->nvml, sizeof state->nvml, "13.580.159.04");
    state->cuda = 13000;
    state->count = -1;
    while (fgets(line, sizeof line, file))
        parse_line(state, line);
    fclose(file);
    if (state->count < 0)
        state->count = state->gpus;
    return state;
}

/* Whether the caller can see this process at all; a process of another user exists although it may not be signalled. */
static int exists(unsigned int pid) {
    return kill((pid_t)pid, 0) == 0 || errno == EPERM;
}

struct state *state_load_processes(void) {
    struct state *state = state_load();
    if (!state)
        return NULL;
    allocations_collect(state);
    if (state->drop_foreign)
        /* The driver translates PIDs to the caller's namespace and leaves out those that have none there;
         * their memory counts all the same. */
        for (int i = 0; i < state->processes; i++)
            if (!exists(state->process[i].pid))
                state->process[i].kind = 'H';
    return state;
}

void state_add_process(struct state *state, struct process row) {
    for (int i = 0; i < state->processes; i++) {
        struct process *known = &state->process[i];
        if (known->gpu == row.gpu && known->pid == row.pid && known->kind == row.kind && known->gi == row.gi &&
            known->ci == row.ci) {
            known->mib = known->mib < 0 || row.mib < 0 ? -1 : known->mib + row.mib;
            return;
        }
    }
    if (state->processes < MAX_PROCESSES)
        state->process[state->processes++] = row;
}
