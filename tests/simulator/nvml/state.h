/*
 * SPDX-FileCopyrightText: The inferops.sglang authors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * What the simulated machine looks like right now: the configuration file, read anew at each call, plus the
 * allocations that processes hold.  README.md describes the file formats.
 */
#ifndef FAKE_NVML_STATE_H
#define FAKE_NVML_STATE_H

#include "nvml_types.h"

#define MAX_GPUS 64
#define MAX_INSTANCES 64
#define MAX_PROCESSES 2048
#define MAX_RULES 128
#define ANY_GPU (-1) /* a rule for every GPU, or a call that concerns none in particular */

struct gpu {
    int present;
    char uuid[96], name[96], bus[32], serial[32];
    long long total, reserved, base; /* MiB; base = used although no process holds it */
    unsigned int minor, persistence, mig, recovery, utilization, display;
    unsigned int capability; /* of CUDA: ten times the major number, and the minor one */
    unsigned int virtualization, fabric;
    char links[256]; /* the other end of each NVLink: a PCI bus id, "switch" or "down", with commas between */
};

/* A MIG instance: memory of its own, as the configuration says; processes name it by gi and ci. */
struct instance {
    int gpu, index;
    char uuid[96];
    long long total, used; /* MiB; what processes hold there comes on top of the configured use */
    unsigned int gi, ci;
};

/* One row of a process list. */
struct process {
    int gpu;
    unsigned int pid, gi, ci;
    long long mib; /* -1 = the driver does not say */
    char kind;     /* C compute, G graphics, M MPS client, H held but in no list */
};

/* A failure on request. */
struct rule {
    enum { RULE_FAIL, RULE_HANG } what;
    char function[96]; /* shell pattern over the symbol's name */
    int gpu;
    int whole;           /* only what is asked about the whole GPU, not about its MIG instances */
    nvmlReturn_t code;   /* RULE_FAIL */
    double seconds;      /* RULE_HANG; negative = for ever */
    long after, times;   /* let that many calls pass first; act on that many (-1 = on all) */
};

struct state {
    char driver[80], nvml[80];
    int cuda, count, gpus, instances, processes, rules;
    nvmlReturn_t init;
    int drop_foreign;
    double release_delay; /* seconds */
    struct gpu gpu[MAX_GPUS];
    struct instance instance[MAX_INSTANCES];
    struct process process[MAX_PROCESSES];
    struct rule rule[MAX_RULES];
};

/* The folder that all processes of one simulated host share. */
const char *state_folder(void);

/* Read the configuration; NULL when there is none (no driver on this machine). Valid until this thread's next call. */
struct state *state_load(void);

/* The same with the processes that hold memory now. Costs a look at each allocation file. */
struct state *state_load_processes(void);

/* Add a row, or add to the row that the process already has. */
void state_add_process(struct state *state, struct process row);

/* Append a row for each allocation in the shared folder; forget the allocations that are over. */
void allocations_collect(struct state *state);

/* The PID namespace of a process ("self" or a number), 0 where that cannot be seen. */
unsigned long pid_namespace(const char *process);

/* The PID here of a process that has that one in another namespace, 0 where it has none here. */
unsigned int pid_in_our_namespace(unsigned long namespace, unsigned int pid);

/*
 * What the configuration wants of this call: sleeps where it wants a hang, and returns the code to answer with.
 * instance: whether the call is about a MIG instance of that GPU.
 */
nvmlReturn_t faults_apply(const struct state *state, const char *function, int gpu, int instance);

#endif
