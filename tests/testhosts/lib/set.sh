# shellcheck shell=bash
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
#
# A set of hosts: $SET is a tmpfs that holds all that is written while it runs.

SET_MOST_HOSTS=12        # each systemd takes some of fs.inotify.max_user_instances (128 by default)
SET_MOST_LIGHT_HOSTS=244 # the addresses that the network has

set_cgroup() { echo "$SET/cgroup/testhosts-$NAME"; }
set_hosts() { find "$SET/host" -mindepth 1 -maxdepth 1 -printf '%f\n' 2>/dev/null | sort -n; }
set_required() { mountpoint -q "$SET" || die "the set '$NAME' is not up; \`testhosts up\` starts it (TH_NAME names another)"; }

# ---- up -------------------------------------------------------------------------------------------------------------

set_up() {
    local count=$1 started=$EPOCHREALTIME most=$SET_MOST_HOSTS HOST
    [[ $INIT == systemd ]] || most=$SET_MOST_LIGHT_HOSTS
    [[ $count =~ ^[1-9][0-9]*$ && $count -le $most ]] || die "up $count: use a number from 1 to $most"
    root_build
    if mountpoint -q "$SET"; then
        say "the set '$NAME' is up or was left behind: taking it down first"
    fi
    set_down
    set_create "$count"
    for HOST in $(seq "$count"); do
        host_create
        host_power_on
    done
    for HOST in $(seq "$count"); do
        host_wait_ready || die "the set '$NAME' is left as it is for a look; \`testhosts down\` removes it"
    done
    set_write_inventory
    say "$count hosts up in $(awk -v a="$started" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }') s; inventory: $SET/inventory"
}

set_create() {
    local host
    mkdir -p "$SET"
    mount -t tmpfs -o mode=755,size=50% "testhosts-$NAME" "$SET"
    mkdir -p "$SET/host" "$SET/cgroup" "$SET/control"
    mount -t cgroup2 cgroup2 "$SET/cgroup"
    mkdir -p "$(set_cgroup)"
    ssh-keygen -q -t ed25519 -N '' -C "testhosts-$NAME" -f "$SET/id_ed25519"
    {
        echo '127.0.0.1 localhost'
        for host in $(seq "$1"); do
            echo "$(network_address "$host") gpu-$host"
        done
    } >"$SET/hosts"
    network_create
    layer_build
}

set_inventory() {
    set_required
    echo "$SET/inventory"
}

set_write_inventory() {
    local host
    cp -r "$HERE/inventory" "$SET/"
    {
        echo '---'
        echo 'gpu_hosts:'
        echo '  hosts:'
        for host in $(set_hosts); do
            echo "    gpu-$host:"
            echo "      ansible_host: $(network_address "$host")"
        done
        echo '  vars:'
        echo "    testhosts_state: $SET"
    } >"$SET/inventory/hosts.yml"
}

# ---- status ---------------------------------------------------------------------------------------------------------

set_status() {
    local HOST
    set_required
    for HOST in $(set_hosts); do
        printf '%-8s %-15s %-10s pid %s\n' "$(host_name)" "$(network_address "$HOST")" "$(host_state)" "$(host_pid || echo -)"
    done
}

# ---- down -----------------------------------------------------------------------------------------------------------

# Removes whatever there is, also what a crashed run left half made.
set_down() {
    local HOST
    if mountpoint -q "$SET"; then
        for HOST in $(set_hosts); do
            [[ ! -e $(host_cgroup)/cgroup.kill ]] || host_kill
        done
        for HOST in $(set_hosts); do
            host_destroy
        done
        ! mountpoint -q "$SET/layer.root" || umount -l "$SET/layer.root"
        [[ ! -d $(set_cgroup) ]] || find "$(set_cgroup)" -depth -type d -exec rmdir {} +
        ! mountpoint -q "$SET/cgroup" || umount "$SET/cgroup"
    fi
    network_destroy
    ! mountpoint -q "$SET" || umount "$SET" || umount -l "$SET"
    # Ansible makes its folder for connections anew where it finds none.
    [[ ! -d $SET ]] || rm -rf --one-file-system "$SET"
    [[ ! -d ${SET%/*} ]] || rmdir --ignore-fail-on-non-empty "${SET%/*}"
    traces_none
}
