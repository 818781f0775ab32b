/*
 * SPDX-FileCopyrightText: The inferops.sglang authors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * ssh to a host that is not there: takes what it is sent, waits as long as the recorded call took, and answers the
 * same.  So a controller can be measured with hosts that have processors of their own.
 *
 * A line of the file `calls` is one call: its seconds, its exit status, and the number of the files with its answer.
 *
 * $FLEET_RECORD is the folder of record_ssh, $FLEET_STATE one in which each host has a file with the number of its next
 * call.  The last but one argument is the host's name, as Ansible calls ssh.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char buffer[1 << 16];

static void fail(const char *what) {
    fprintf(stderr, "replay_ssh: %s\n", what);
    exit(255);
}

static void copy(const char *folder, long number, const char *kind, int to) {
    char path[4096];
    ssize_t size;
    snprintf(path, sizeof path, "%s/%ld.%s", folder, number, kind);
    int from = open(path, O_RDONLY);
    if (from < 0)
        fail("no such recorded call");
    while ((size = read(from, buffer, sizeof buffer)) > 0)
        for (ssize_t done = 0, part; done < size; done += part)
            if ((part = write(to, buffer + done, size - done)) < 0)
                fail("nobody reads");
    close(from);
}

/* The number of this host's call; the next one's is written. */
static long next_call(const char *state, const char *host) {
    char path[4096];
    long number = 0;
    snprintf(path, sizeof path, "%s/%s", state, host);
    FILE *file = fopen(path, "r");
    if (file) {
        if (fscanf(file, "%ld", &number) != 1)
            fail("unreadable state");
        fclose(file);
    }
    if (!(file = fopen(path, "w")) || fprintf(file, "%ld\n", number + 1) < 0 || fclose(file))
        fail("state cannot be written");
    return number;
}

int main(int argc, char **argv) {
    const char *record = getenv("FLEET_RECORD"), *state = getenv("FLEET_STATE");
    char path[4096];
    double seconds = -1;
    int status = 255;
    long answer = 0;
    if (argc < 3 || !record || !state)
        fail("needs FLEET_RECORD, FLEET_STATE and arguments");
    long number = next_call(state, argv[argc - 2]);
    snprintf(path, sizeof path, "%s/calls", record);
    FILE *calls = fopen(path, "r");
    if (!calls)
        fail("no recorded calls");
    for (long line = 0; line <= number; line++)
        if (fscanf(calls, "%lf %d %ld", &seconds, &status, &answer) != 3)
            fail("more calls than were recorded");
    fclose(calls);
    while (!isatty(STDIN_FILENO) && read(STDIN_FILENO, buffer, sizeof buffer) > 0)
        ;
    struct timespec rest = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    nanosleep(&rest, NULL);
    copy(record, answer, "out", STDOUT_FILENO);
    copy(record, answer, "err", STDERR_FILENO);
    return status;
}
