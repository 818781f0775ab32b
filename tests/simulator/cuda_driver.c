/*
 * SPDX-FileCopyrightText: The inferops.sglang authors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A libcuda.so.1 that allocates nothing, and answers as a sound GPU does.  FAKECUDA="FUNCTION CODE" makes that function
 * fail; with the code "hang" it never returns.  The one GPU that CUDA_VISIBLE_DEVICES names is there.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int answer(const char *function) {
    char name[64], code[16];
    const char *wish = getenv("FAKECUDA");
    if (!wish || sscanf(wish, "%63s %15s", name, code) != 2 || strcmp(name, function))
        return 0;
    if (!strcmp(code, "hang"))
        for (;;)
            pause();
    if (!strcmp(code, "crash"))
        abort();
    return atoi(code);
}

int cuInit(unsigned flags) {
    return flags ? 1 : answer(__func__);
}

int cuDeviceGetCount(int *count) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    *count = visible && !strncmp(visible, "GPU-", 4) && !strchr(visible, ',');
    return answer(__func__);
}

int cuDeviceGet(int *device, int number) {
    *device = number;
    return number ? 101 : answer(__func__);
}

int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    static int one;
    *context = &one;
    return flags || device ? 1 : answer(__func__);
}

int cuMemAlloc_v2(unsigned long long *memory, size_t size) {
    *memory = size ? 4096 : 0;
    return answer(__func__);
}

int cuMemsetD8_v2(unsigned long long memory, unsigned char value, size_t size) {
    return memory != 4096 || value || !size ? 1 : answer(__func__);
}

int cuCtxSynchronize(void) {
    return answer(__func__);
}

int cuMemFree_v2(unsigned long long memory) {
    return memory != 4096 ? 1 : answer(__func__);
}

int cuCtxDestroy_v2(void *context) {
    return context ? answer(__func__) : 1;
}
