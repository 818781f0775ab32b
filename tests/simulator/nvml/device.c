/*
 * SPDX-FileCopyrightText: The inferops.sglang authors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Finding devices and asking what they are.
 */
#include "session.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- handles ------------------------------------------------------------------------------------------------- */

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    struct state *state;
    nvmlReturn_t code = session_enter(__func__, ANY_GPU, &state);
    if (code == NVML_SUCCESS)
        *count = (unsigned)state->count;
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) {
    return nvmlDeviceGetCount_v2(count);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    struct state *state;
    nvmlReturn_t code = session_enter(__func__, (int)index, &state);
    if (code)
        return code;
    if (index >= MAX_GPUS || !state->gpu[index].present)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = session_handle((int)index, -1);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

/*
 * The two ways to look a device up by text differ only in the text that they compare.  Which GPU is meant is known
 * only after the configuration was read, and only then can a failure of that GPU apply.
 */
static nvmlReturn_t find(const char *function, const char *text, size_t offset, nvmlDevice_t *device) {
    struct state *state;
    nvmlReturn_t code = session_enter("", ANY_GPU, &state);
    if (code)
        return code;
    int found = ANY_GPU, instance = -1;
    for (int i = 0; i < state->gpus; i++)
        if (state->gpu[i].present && !strcasecmp((const char *)&state->gpu[i] + offset, text))
            found = i;
    for (int i = 0; i < state->instances; i++)
        if (!strcmp(state->instance[i].uuid, text)) {
            found = state->instance[i].gpu;
            instance = i;
        }
    code = faults_apply(state, function, found, instance >= 0);
    if (code)
        return code;
    if (found == ANY_GPU)
        return NVML_ERROR_NOT_FOUND;
    *device = session_handle(found, instance);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    return find(__func__, uuid, offsetof(struct gpu, uuid), device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *device) {
    /* The domain has eight digits here; callers may give four, as the kernel does, or leave it out. */
    char full[64];
    const char *colon = strchr(bus, ':');
    if (!colon || !strchr(colon + 1, ':'))
        snprintf(full, sizeof full, "00000000:%.40s", bus);
    else
        snprintf(full, sizeof full, "%.*s%.40s", colon - bus < 8 ? (int)(8 - (colon - bus)) : 0, "00000000", bus);
    return find(__func__, full, offsetof(struct gpu, bus), device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(bus, device);
}

/* ---- identity ------------------------------------------------------------------------------------------------ */

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *buffer, unsigned int size) {
    ENTER_DEVICE(device, 0);
    return session_put(device->instance < 0 ? gpu->uuid : state->instance[device->instance].uuid, buffer, size);
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *buffer, unsigned int size) {
    ENTER_DEVICE(device, 0);
    return session_put(gpu->name, buffer, size);
}

EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *buffer, unsigned int size) {
    ENTER_DEVICE(device, 0);
    return gpu->serial[0] ? session_put(gpu->serial, buffer, size) : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    ENTER_DEVICE(device, 0);
    *index = (unsigned)device->gpu;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
    ENTER_DEVICE(device, 0);
    *minor = gpu->minor;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info) {
    ENTER_DEVICE(device, 0);
    memset(info, 0, sizeof *info);
    unsigned int function = 0;
    sscanf(gpu->bus, "%x:%x:%x.%x", &info->domain, &info->bus, &info->device, &function);
    snprintf(info->busId, sizeof info->busId, "%s", gpu->bus);
    snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%04X:%02X:%02X.%X", info->domain & 0xffff,
             info->bus & 0xff, info->device & 0xff, function & 0xf);
    info->pciDeviceId = 0x233510de;
    info->pciSubSystemId = 0x18be10de;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    ENTER_DEVICE(device, 0);
    *major = (int)gpu->capability / 10;
    *minor = (int)gpu->capability % 10;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture) {
    /* From which capability on a GPU is of which generation, as nvml.h numbers them. */
    static const unsigned int since[][2] = {{100, 10}, {90, 9}, {89, 8}, {80, 7}, {75, 6}, {70, 5}, {60, 4}, {50, 3}};
    ENTER_DEVICE(device, 0);
    *architecture = 2;
    for (size_t i = 0; i < sizeof since / sizeof *since; i++)
        if (gpu->capability >= since[i][0]) {
            *architecture = since[i][1];
            break;
        }
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, unsigned int *mode) {
    ENTER_DEVICE(device, 0);
    *mode = gpu->virtualization;
    return NVML_SUCCESS;
}

/* ---- NVLink -------------------------------------------------------------------------------------------------- */

/* The other end of a link as text. A GPU without links has none at all, which is another answer than one too many. */
static nvmlReturn_t other_end(const struct gpu *gpu, unsigned int link, char *text, size_t size) {
    char links[sizeof gpu->links], *rest;
    if (!gpu->links[0])
        return NVML_ERROR_NOT_SUPPORTED;
    snprintf(links, sizeof links, "%s", gpu->links);
    for (char *end = strtok_r(links, ",", &rest); end; end = strtok_r(NULL, ",", &rest))
        if (link-- == 0) {
            snprintf(text, size, "%s", end);
            return NVML_SUCCESS;
        }
    return NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, unsigned int *active) {
    char end[64] = "";
    ENTER_DEVICE(device, 0);
    nvmlReturn_t code = other_end(gpu, link, end, sizeof end);
    *active = code == NVML_SUCCESS && strcmp(end, "down");
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, unsigned int *type) {
    char end[64] = "";
    ENTER_DEVICE(device, 0);
    nvmlReturn_t code = other_end(gpu, link, end, sizeof end);
    *type = strcmp(end, "switch") ? 0 : 2;
    return code == NVML_SUCCESS && !strcmp(end, "down") ? NVML_ERROR_NOT_SUPPORTED : code;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *info) {
    char end[64] = "";
    ENTER_DEVICE(device, 0);
    nvmlReturn_t code = other_end(gpu, link, end, sizeof end);
    memset(info, 0, sizeof *info);
    snprintf(info->busId, sizeof info->busId, "%.31s", end);
    return code == NVML_SUCCESS && !strcmp(end, "down") ? NVML_ERROR_NOT_SUPPORTED : code;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v2_t *info) {
    ENTER_DEVICE(device, 0);
    if (info->version != (sizeof *info | 2U << 24))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    info->status = NVML_SUCCESS;
    info->state = (unsigned char)gpu->fabric;
    return NVML_SUCCESS;
}

/* ---- memory -------------------------------------------------------------------------------------------------- */

/* MiB that are in use beside what the driver reserves. Rows without a figure count nothing. */
static long long used_mib(const struct state *state, int gpu) {
    long long used = state->gpu[gpu].base;
    for (int i = 0; i < state->processes; i++)
        if (state->process[i].gpu == gpu && state->process[i].mib > 0)
            used += state->process[i].mib;
    return used;
}

struct figures {
    unsigned long long total, reserved, used, free; /* bytes */
};

static struct figures memory_of(const struct state *state, nvmlDevice_t device) {
    const struct gpu *gpu = &state->gpu[device->gpu];
    long long total = gpu->total, reserved = gpu->reserved, used;
    if (device->instance >= 0) {
        total = state->instance[device->instance].total;
        reserved = 0;
        used = state->instance[device->instance].used;
    } else {
        used = used_mib(state, device->gpu);
    }
    if (used > total - reserved) /* more than there is cannot be in use */
        used = total - reserved;
    return (struct figures){(unsigned long long)total << 20, (unsigned long long)reserved << 20,
                            (unsigned long long)used << 20, (unsigned long long)(total - reserved - used) << 20};
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    ENTER_DEVICE(device, 1);
    struct figures figures = memory_of(state, device);
    *memory = (nvmlMemory_t){figures.total, figures.free, figures.used + figures.reserved};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    ENTER_DEVICE(device, 1);
    if (memory->version != (sizeof *memory | 2U << 24))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    struct figures figures = memory_of(state, device);
    *memory = (nvmlMemory_v2_t){memory->version, figures.total, figures.reserved, figures.free, figures.used};
    return NVML_SUCCESS;
}

/* ---- modes and condition ------------------------------------------------------------------------------------- */

EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned int *mode) {
    ENTER_DEVICE(device, 0);
    *mode = gpu->persistence;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode) {
    ENTER_DEVICE(device, 0);
    *mode = 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, unsigned int *mode) {
    ENTER_DEVICE(device, 0);
    *mode = gpu->display;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, unsigned int *active) {
    ENTER_DEVICE(device, 0);
    *active = gpu->display;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    ENTER_DEVICE(device, 0);
    *rates = (nvmlUtilization_t){gpu->utilization, 0};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    ENTER_DEVICE(device, 0);
    for (int i = 0; i < count; i++) {
        nvmlFieldValue_t *field = &values[i];
        field->timestamp = field->latencyUsec = 0;
        field->valueType = 1;
        field->nvmlReturn = NVML_ERROR_NOT_SUPPORTED; /* each value has a return code of its own */
        if (field->fieldId == NVML_FI_DEV_GET_GPU_RECOVERY_ACTION) {
            field->value.uiVal = gpu->recovery;
            field->nvmlReturn = NVML_SUCCESS;
        }
    }
    return NVML_SUCCESS;
}

/* ---- MIG ----------------------------------------------------------------------------------------------------- */

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *now, unsigned int *pending) {
    ENTER_DEVICE(device, 0);
    *now = *pending = gpu->mig;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    ENTER_DEVICE(device, 0);
    *count = gpu->mig ? 7 : 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *instance) {
    ENTER_DEVICE(device, 0);
    if (!gpu->mig)
        return NVML_ERROR_NOT_SUPPORTED;
    for (int i = 0; i < state->instances; i++)
        if (state->instance[i].gpu == device->gpu && state->instance[i].index == (int)index) {
            *instance = session_handle(device->gpu, i);
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t instance, nvmlDevice_t *device) {
    ENTER_DEVICE(instance, 0);
    if (instance->instance < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = session_handle(instance->gpu, -1);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_instance) {
    ENTER_DEVICE(device, 0);
    *is_instance = device->instance >= 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id) {
    ENTER_DEVICE(device, 0);
    if (device->instance < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *id = state->instance[device->instance].gi;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id) {
    ENTER_DEVICE(device, 0);
    if (device->instance < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *id = state->instance[device->instance].ci;
    return NVML_SUCCESS;
}
