/*
 * SPDX-FileCopyrightText: The inferops.sglang authors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * PIDs of other namespaces, by what /proc tells: a host sees the processes of its guests, but not the other way round.
 */
#include "state.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

unsigned long pid_namespace(const char *process) {
    char path[64];
    struct stat status;
    snprintf(path, sizeof path, "/proc/%.20s/ns/pid", process);
    return stat(path, &status) == 0 ? (unsigned long)status.st_ino : 0;
}

/* The PID that a process has in its own, innermost namespace. */
static unsigned int innermost_pid(const char *process) {
    char path[64], line[256];
    unsigned int pid = 0;
    snprintf(path, sizeof path, "/proc/%.20s/status", process);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    while (!pid && fgets(line, sizeof line, file))
        if (!strncmp(line, "NSpid:", 6))
            pid = (unsigned int)strtoul(strrchr(line, '\t') + 1, NULL, 10);
    fclose(file);
    return pid;
}

unsigned int pid_in_our_namespace(unsigned long namespace, unsigned int pid) {
    DIR *proc = opendir("/proc");
    unsigned int found = 0;
    if (!proc)
        return 0;
    for (struct dirent *entry; !found && (entry = readdir(proc));)
        if (isdigit((unsigned char)*entry->d_name) && pid_namespace(entry->d_name) == namespace &&
            innermost_pid(entry->d_name) == pid)
            found = (unsigned int)strtoul(entry->d_name, NULL, 10);
    closedir(proc);
    return found;
}
