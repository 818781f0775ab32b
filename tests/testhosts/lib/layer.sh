# shellcheck shell=bash
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
#
# What this checkout adds to the Debian root: the fake NVML library, nvidia-ml-py, the stand-in SGLang
# and its models. Made afresh at each `up` in about a second, and shared read-only by the set's hosts.

layer_build() {
    local root=$SET/layer.root
    layer_check
    mkdir -p "$SET/layer" "$SET/layer.work" "$root"
    mount -t overlay testhosts-layer -o "lowerdir=$(root_path),upperdir=$SET/layer,workdir=$SET/layer.work" "$root"
    layer_bytecode "$root"
    layer_nvml "$root"
    layer_simulator "$root"
    layer_sglang "$root"
    layer_containers "$root"
    [[ $INIT == systemd ]] || layer_light "$root"
    [[ -z $EXTRA ]] || cp -r "$EXTRA/." "$root/"
    umount "$root"
}

layer_check() {
    [[ -x $PYTHON ]] || die "TH_PYTHON=$PYTHON: no such Python; \`make venv-run\` makes it"
    "$PYTHON" -c 'import pynvml' 2>/dev/null || die "TH_PYTHON=$PYTHON has no nvidia-ml-py; \`make venv-run\` installs it"
    [[ -d $SIMULATOR ]] || die "TH_SIMULATOR=$SIMULATOR: no such folder"
}

# Run a command in the root that is being made, with nothing of the caller's environment.
layer_run() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 chroot "$@"; }

# What halves the CPU time of Ansible's tasks in a host.
layer_bytecode() {
    local packages=$1/usr/lib/python3/dist-packages
    mkdir -p "$packages" "$1/var/cache/zip-bytecode"
    install -m 644 "$HERE/files/zip_bytecode.py" "$packages/"
    layer_run "$1" python3 -m compileall -q /usr/lib/python3/dist-packages/zip_bytecode.py
    echo 'import zip_bytecode' >"$packages/zip_bytecode.pth"
}

# The library where the linker finds it, and the Python binding where the system's python3 finds it.
layer_nvml() {
    local root=$1
    local packages=$root/usr/lib/python3/dist-packages
    "$SIMULATOR/nvml/build.sh" "$SET/nvml" >/dev/null
    install -m 644 "$SET/nvml/libnvidia-ml.so.1" "$root/usr/lib/$(gcc -print-multiarch)/libnvidia-ml.so.1"
    layer_run "$root" ldconfig
    mkdir -p "$packages"
    "$PYTHON" "$HERE/lib/copy_distribution.py" nvidia-ml-py "$packages"
    layer_run "$root" python3 -m compileall -q /usr/lib/python3/dist-packages/pynvml.py
}

# The simulator's tools, and the unit that plugs the GPUs in at every boot (their state is in /run).
layer_simulator() {
    local root=$1
    local units=$root/etc/systemd/system
    mkdir -p "$root/opt/simulator" "$units/sysinit.target.wants"
    install -m 755 "$SIMULATOR"/*.py "$HERE/files/stuck_holder.py" "$root/opt/simulator/"
    install -m 644 "$HERE/files/fakegpu.service" "$units/"
    ln -sf ../fakegpu.service "$units/sysinit.target.wants/fakegpu.service"
}

# Hosts of which a machine can carry hundreds: the file tells which kind this is.
layer_light() {
    install -m 755 "$HERE/files/light-init" "$1/opt/simulator/light-init"
    echo 'nothing but sshd runs here' >"$1/etc/testhosts-light"
}

layer_sglang() {
    local root=$1 packages
    layer_run "$root" python3 -m venv --without-pip --system-site-packages /opt/sglang
    packages=$(layer_run "$root" /opt/sglang/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    "$PYTHON" "$SIMULATOR/install.py" "$root$packages"
    layer_run "$root" /opt/sglang/bin/python -m compileall -q "$packages"
    layer_models "$root"
}

layer_models() {
    local root=$1
    mkdir -p "$root/models"
    layer_run "$root" python3 /opt/simulator/make_model.py /models/target
    layer_run "$root" python3 /opt/simulator/make_model.py --draft /models/draft-eagle3
}
