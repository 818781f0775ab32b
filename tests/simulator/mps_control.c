/*
 * SPDX-FileCopyrightText: The inferops.sglang authors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A simulated nvidia-cuda-mps-control.  With -d it is the daemon, which does nothing but live; without, it reads
 * commands from standard input and carries them out.  What they share is $CUDA_MPS_PIPE_DIRECTORY:
 *
 *     daemon, server    their PIDs
 *     clients           those of the clients, one a line
 *     said              each command, with "client lives" or "client gone" behind it (written by this program)
 *
 * As the real one does, terminate_client answers 0 and leaves the process alone: it ends the client's work only.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *folder(void) {
    const char *set = getenv("CUDA_MPS_PIPE_DIRECTORY");
    return set && *set ? set : "/tmp/nvidia-mps";
}

static FILE *open_part(const char *name, const char *mode) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder(), name);
    return fopen(path, mode);
}

static int read_pid(const char *name) {
    int pid = 0;
    FILE *file = open_part(name, "r");
    if (file) {
        if (fscanf(file, "%d", &pid) != 1)
            pid = 0;
        fclose(file);
    }
    return pid;
}

/* A zombie does not live. */
static int lives(int pid) {
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    const char *end = strrchr(text, ')');
    return size && end && end[1] && end[2] != 'Z';
}

static int clients(int print) {
    int pid, found = 0;
    FILE *file = open_part("clients", "r");
    while (file && fscanf(file, "%d", &pid) == 1)
        if (lives(pid)) {
            found++;
            if (print)
                printf("%d\n", pid);
        }
    if (file)
        fclose(file);
    return found;
}

static void note(const char *command) {
    FILE *file = open_part("said", "a");
    if (file) {
        fprintf(file, "%s: client %s\n", command, clients(0) ? "lives" : "gone");
        fclose(file);
    }
}

static void end(const char *name) {
    int pid = read_pid(name);
    if (pid > 1)
        kill(pid, SIGKILL);
}

static void carry_out(char *line) {
    int server = read_pid("server"), one = 0, two = 0;
    line[strcspn(line, "\r\n")] = '\0';
    note(line);
    if (!strcmp(line, "get_server_list")) {
        if (server && lives(server))
            printf("%d\n", server);
    } else if (sscanf(line, "get_client_list %d", &one) == 1) {
        if (one == server)
            clients(1);
    } else if (sscanf(line, "terminate_client %d %d", &one, &two) == 2) {
        printf("%d\n", one == server ? 0 : 1);
    } else if (sscanf(line, "shutdown_server %d", &one) == 1) {
        if (one == server)
            end("server");
    } else if (!strncmp(line, "quit", 4)) {
        /* Without -f it waits for its clients, with -t no longer than that. */
        int patience = strstr(line, "-f") ? 0 : 600;
        sscanf(line, "quit -t %d", &patience);
        time_t until = time(NULL) + patience;
        while (clients(0) && time(NULL) < until)
            usleep(20000);
        end("server");
        end("daemon");
        exit(0);
    } else {
        printf("Invalid command\n");
    }
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "-d"))
        for (;;)
            pause();
    FILE *hangs = open_part("hangs", "r");
    if (hangs) {
        signal(SIGTERM, SIG_IGN);
        for (;;)
            pause();
    }
    char line[256];
    while (fgets(line, sizeof line, stdin))
        carry_out(line);
    return 0;
}
