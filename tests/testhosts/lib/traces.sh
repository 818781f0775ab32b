# shellcheck shell=bash
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
#
# What a set has on the machine, found without the set's own records: those may be gone, or half made.

TRACES_GONE_SECONDS=10

# One line for each: its kind, and what it is.
traces_list() {
    traces_folder
    traces_mounts
    traces_networks
    traces_groups
    traces_processes
}

traces_folder() { [[ ! -e $SET ]] || echo "folder $SET"; }

traces_mounts() { awk -v set="$SET" '$5 == set || index($5, set "/") == 1 { print "mount", $5 }' /proc/self/mountinfo; }

traces_networks() {
    local path
    for path in /run/netns/*; do
        ! network_is_ours "${path##*/}" || echo "network $path"
    done
}

# The hierarchy need not be mounted anywhere.
traces_groups() {
    # shellcheck disable=SC2016  # expanded by the inner shell
    unshare --mount sh -c 'mount -t cgroup2 cgroup2 /mnt && find /mnt -maxdepth 1 -name "$1" -printf "group %f\n"' \
        sh "testhosts-$NAME"
}

# Those of the hosts by their control group, and the controller's connections to them by what they were called with.
traces_processes() {
    local path group words
    for path in /proc/[0-9]*; do
        # Without a fork for each: there may be many. A process that ended meanwhile has nothing to be read.
        group='' words=()
        { IFS= read -rd '' group <"$path/cgroup" || true; mapfile -d '' words <"$path/cmdline"; } 2>/dev/null || true
        if [[ $group == *"/testhosts-$NAME/"* || ${words[0]-} =~ (^|/)ssh(:|$) && "${words[*]}" == *"$SET/"* ]]; then
            words=("${words[@]//$'\n'/ }")
            echo "process ${path#/proc/} ${words[*]}"
        fi
    done | cut -c-120
}

# Processes that were signalled a moment ago may still be ending.
traces_none() {
    local deadline=$((SECONDS + TRACES_GONE_SECONDS)) left
    while left=$(traces_list) && [[ -n $left ]]; do
        ((SECONDS < deadline)) || die "this is left of the set '$NAME':"$'\n'"$left"
        sleep 0.1
    done
}
