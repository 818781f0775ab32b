/*
 * SPDX-FileCopyrightText: The inferops.sglang authors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Initialisation and the queries about the machine as a whole.
 */
#include "session.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int references;
static struct fake_device whole[MAX_GPUS], part[MAX_INSTANCES];

static int initialised(void) {
    pthread_mutex_lock(&lock);
    int result = references > 0;
    pthread_mutex_unlock(&lock);
    return result;
}

nvmlReturn_t session_enter(const char *function, int gpu, struct state **state) {
    if (!initialised())
        return NVML_ERROR_UNINITIALIZED;
    *state = state_load();
    return *state ? faults_apply(*state, function, gpu, 0) : NVML_ERROR_DRIVER_NOT_LOADED;
}

nvmlReturn_t session_enter_device(const char *function, nvmlDevice_t device, int with_processes, struct state **state) {
    if (!initialised())
        return NVML_ERROR_UNINITIALIZED;
    if (!device || device->gpu < 0 || device->gpu >= MAX_GPUS)
        return NVML_ERROR_INVALID_ARGUMENT;
    *state = state_load();
    if (!*state)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    nvmlReturn_t code = faults_apply(*state, function, device->gpu, device->instance >= 0);
    if (code != NVML_SUCCESS)
        return code;
    /* Only now: a call that hangs answers with what is true when it comes back. */
    *state = with_processes ? state_load_processes() : state_load();
    if (!*state)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (!(*state)->gpu[device->gpu].present || device->instance >= (*state)->instances)
        return NVML_ERROR_INVALID_ARGUMENT;
    return NVML_SUCCESS;
}

nvmlDevice_t session_handle(int gpu, int instance) {
    nvmlDevice_t device = instance < 0 ? &whole[gpu] : &part[instance];
    pthread_mutex_lock(&lock);
    device->gpu = gpu;
    device->instance = instance;
    pthread_mutex_unlock(&lock);
    return device;
}

nvmlReturn_t session_put(const char *text, char *buffer, unsigned int size) {
    if (!buffer)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) + 1 > size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    struct state *state = state_load();
    if (!state)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    nvmlReturn_t code = faults_apply(state, __func__, ANY_GPU, 0);
    if (code == NVML_SUCCESS)
        code = state->init;
    if (code != NVML_SUCCESS)
        return code;
    pthread_mutex_lock(&lock);
    references++;
    pthread_mutex_unlock(&lock);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlInit_v2(void) {
    return nvmlInitWithFlags(0);
}

EXPORT nvmlReturn_t nvmlInit(void) {
    return nvmlInitWithFlags(0);
}

EXPORT nvmlReturn_t nvmlShutdown(void) {
    pthread_mutex_lock(&lock);
    nvmlReturn_t code = references > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    if (references > 0)
        references--;
    pthread_mutex_unlock(&lock);
    return code;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t code) {
    static const struct {
        nvmlReturn_t code;
        const char *text;
    } known[] = {
        {0, "Success"},
        {1, "Uninitialized"},
        {2, "Invalid Argument"},
        {3, "Not Supported"},
        {4, "Insufficient Permissions"},
        {6, "Not Found"},
        {7, "Insufficient Size"},
        {9, "Driver Not Loaded"},
        {10, "Timeout"},
        {12, "NVML Shared Library Not Found"},
        {13, "Function Not Found"},
        {15, "GPU is lost"},
        {16, "GPU requires reset"},
        {17, "GPU access blocked by the operating system"},
        {18, "Driver/library version mismatch"},
        {19, "In use by another client"},
        {20, "Insufficient Memory"},
        {25, "Argument version mismatch"},
        {27, "Not Ready"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].code == code)
            return known[i].text;
    return "Unknown Error";
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *buffer, unsigned int size) {
    struct state *state;
    nvmlReturn_t code = session_enter(__func__, ANY_GPU, &state);
    return code ? code : session_put(state->driver, buffer, size);
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *buffer, unsigned int size) {
    struct state *state;
    nvmlReturn_t code = session_enter(__func__, ANY_GPU, &state);
    return code ? code : session_put(state->nvml, buffer, size);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    struct state *state;
    nvmlReturn_t code = session_enter(__func__, ANY_GPU, &state);
    if (code == NVML_SUCCESS)
        *version = state->cuda;
    return code;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    struct state *state;
    nvmlReturn_t code = session_enter(__func__, ANY_GPU, &state);
    if (code == NVML_SUCCESS)
        *version = state->cuda;
    return code;
}

EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int size) {
    struct state *state;
    nvmlReturn_t code = session_enter(__func__, ANY_GPU, &state);
    if (code)
        return code;
    char path[64], text[1024] = "";
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return NVML_ERROR_NOT_FOUND;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0'; /* the arguments are separated by NUL, so this is the first of them */
    if (!name || size == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(name, size, "%s", text);
    return NVML_SUCCESS;
}
