/*
 * SPDX-FileCopyrightText: The inferops.sglang authors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The three process lists, in the three versions of their interface.
 */
#include "session.h"

/* Where the rows go: exactly one of the two is set, or neither when the caller only asks for the number. */
struct target {
    nvmlProcessInfo_t *rows;
    nvmlProcessInfo_v1_t *old_rows;
};

static int belongs(const struct state *state, nvmlDevice_t device, const struct process *row, char kind) {
    if (row->gpu != device->gpu || row->kind != kind)
        return 0;
    if (device->instance < 0)
        return 1;
    const struct instance *instance = &state->instance[device->instance];
    return row->gi == instance->gi && row->ci == instance->ci;
}

/*
 * The size protocol: the number of rows always comes back in *count; with too little room the answer is
 * INSUFFICIENT_SIZE, unless there is nothing to list, which is SUCCESS even with no room at all.
 */
static nvmlReturn_t list(const char *function, nvmlDevice_t device, char kind, unsigned int *count, struct target out) {
    struct state *state;
    nvmlReturn_t code = session_enter_device(function, device, 1, &state);
    if (code)
        return code;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned int room = out.rows || out.old_rows ? *count : 0, found = 0;
    for (int i = 0; i < state->processes; i++) {
        const struct process *row = &state->process[i];
        if (!belongs(state, device, row, kind))
            continue;
        if (found < room) {
            unsigned long long bytes = row->mib < 0 ? NVML_VALUE_NOT_AVAILABLE : (unsigned long long)row->mib << 20;
            if (out.rows)
                out.rows[found] = (nvmlProcessInfo_t){row->pid, bytes, row->gi, row->ci};
            else
                out.old_rows[found] = (nvmlProcessInfo_v1_t){row->pid, bytes};
        }
        found++;
    }
    *count = found;
    return found <= room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

#define LIST(symbol, kind)                                                                                             \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *rows) {                    \
        return list(#symbol, device, kind, count, (struct target){rows, 0});                                           \
    }
#define LIST_V1(symbol, kind)                                                                                          \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *rows) {                 \
        return list(#symbol, device, kind, count, (struct target){0, rows});                                           \
    }

LIST(nvmlDeviceGetComputeRunningProcesses_v3, 'C')
LIST(nvmlDeviceGetComputeRunningProcesses_v2, 'C')
LIST_V1(nvmlDeviceGetComputeRunningProcesses, 'C')
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, 'G')
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, 'G')
LIST_V1(nvmlDeviceGetGraphicsRunningProcesses, 'G')
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, 'M')
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, 'M')
LIST_V1(nvmlDeviceGetMPSComputeRunningProcesses, 'M')
