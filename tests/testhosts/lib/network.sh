# shellcheck shell=bash
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
#
# The network of a set: one namespace for the controller, with a bridge in it, and one for each host.
# Nothing of it is in the machine's own network, and there is no route out.

network_controller() { echo "testhosts-$NAME"; }
network_of() { echo "testhosts-$NAME-$1"; }
network_address() { echo "$NET.$((10 + $1))"; }

network_create() {
    local ctl
    ctl=$(network_controller)
    ip netns add "$ctl"
    ip -n "$ctl" link set lo up
    ip -n "$ctl" link add br0 type bridge
    ip -n "$ctl" address add "$NET.1/24" dev br0
    ip -n "$ctl" link set br0 up
    network_wrappers "$ctl"
}

# ssh, scp and sftp as Ansible is to call them: inside the controller's namespace.
network_wrappers() {
    local tool
    mkdir -p "$SET/bin"
    for tool in ssh scp sftp; do
        install -m 755 /dev/stdin "$SET/bin/$tool" <<WRAPPER
#!/bin/sh
exec nsenter --net=/run/netns/$1 $(command -v "$tool") "\$@"
WRAPPER
    done
}

network_attach() {
    local ctl ns address
    ctl=$(network_controller)
    ns=$(network_of "$1")
    address=$(network_address "$1")
    ip netns add "$ns"
    ip -n "$ns" link set lo up
    ip -n "$ctl" link add "port$1" type veth peer name eth0 netns "$ns"
    ip -n "$ctl" link set "port$1" master br0 up
    ip -n "$ns" address add "$address/24" dev eth0
    ip -n "$ns" link set eth0 up
    # It leads nowhere, but without a default route Ansible's network facts stay empty.
    ip -n "$ns" route add default via "$NET.1"
}

network_run() { exec nsenter --net="/run/netns/$(network_controller)" "$@"; }

network_is_ours() { [[ $1 == "$(network_controller)" || $1 =~ ^"$(network_controller)"-[0-9]+$ ]]; }

network_destroy() {
    local ns
    # Without the tool there never was a network.
    command -v ip >/dev/null || return 0
    for ns in $(ip netns list | awk '{ print $1 }'); do
        network_is_ours "$ns" || continue
        network_end_processes "$ns"
        ip netns delete "$ns"
    done
}

# What is left in there are the persistent ssh connections of the controller.
network_end_processes() {
    local signal pids tries
    for signal in TERM KILL; do
        for ((tries = 0; tries < 20; tries++)); do
            pids=$(ip netns pids "$1")
            [[ -n $pids ]] || return 0
            # shellcheck disable=SC2086  # a list
            ((tries)) || kill -s "$signal" $pids 2>/dev/null || true
            sleep 0.05
        done
    done
}
