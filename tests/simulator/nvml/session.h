/*
 * SPDX-FileCopyrightText: The inferops.sglang authors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * What every exported function does first: is the library initialised, what does the machine look like, is this
 * call to fail.  Handles carry the number of the GPU, and of the MIG instance where they mean one.
 */
#ifndef FAKE_NVML_SESSION_H
#define FAKE_NVML_SESSION_H

#include "state.h"

#define EXPORT __attribute__((visibility("default")))

struct fake_device {
    int gpu;
    int instance; /* index into state.instance, or -1 for a whole GPU */
};

/* A call about the machine, or about one GPU that has no handle yet (gpu may be ANY_GPU). */
nvmlReturn_t session_enter(const char *function, int gpu, struct state **state);

/* A call about a device.  with_processes: also look at who holds memory. */
nvmlReturn_t session_enter_device(const char *function, nvmlDevice_t device, int with_processes, struct state **state);

/* The permanent handle of a GPU or instance. */
nvmlDevice_t session_handle(int gpu, int instance);

/* Copy a string out as NVML does: INSUFFICIENT_SIZE when it does not fit. */
nvmlReturn_t session_put(const char *text, char *buffer, unsigned int size);

/* Begin an exported function about a device: declares `state` and `gpu`, and returns on every reason to fail. */
#define ENTER_DEVICE(device, with_processes)                                                                           \
    struct state *state;                                                                                               \
    nvmlReturn_t entered = session_enter_device(__func__, device, with_processes, &state);                             \
    if (entered != NVML_SUCCESS)                                                                                       \
        return entered;                                                                                                \
    const struct gpu *gpu = &state->gpu[(device)->gpu];                                                                \
    (void)gpu

#endif
