# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of nvidia-smi, real ones and broken ones."""

from __future__ import annotations

import pathlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import smi_errors
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import (
    COMPUTE,
    FREE,
    GRAPHICS,
    MIG_INSTANCES,
    MPS,
    NVIDIA_SMI,
    NVIDIA_SMI_V1,
    UNKNOWN,
    GpuError,
    GpuIdentity,
    ListedProcess,
    MemoryReading,
    MigDevice,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.smi_parser import (
    parse,
    parse_mig_uuids,
    parse_versions,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.verdict import Limits, judge
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import uuid

PID_MAX = 4194304
DATA = pathlib.Path(__file__).parent / "data"
IDLE, BUSY, MIG = ((DATA / ("smi_%s.xml" % name)).read_text() for name in ("idle", "busy", "mig"))
WORDS = ["N/A", "[N/A]", "[Not Supported]", "Not Supported", "Unknown Error", "[Unknown Error]", "GPU is lost"]
WORDS += [
    "[GPU is lost]",
    "Insufficient Permissions",
    "[Insufficient Permissions]",
    "ERR!",
    "",
    "None",
    "zero",
    "-1 MiB",
]
WORDS += ["1 GiB", "1 KiB", "1", "1.5 MiB", "1e3 MiB", "\u0661 MiB", "1" * 5000 + " MiB", "MiB", "0x10 MiB"]


def edited(text, path, value, which=0):
    """The answer with another text in one element of one GPU; None leaves the element out."""
    head, *gpus = text.split("<gpu id=")
    tag = path.rpartition("/")[2]
    outer = path.rpartition("/")[0].rpartition("/")[2]
    start = gpus[which].index("<%s>" % outer) if outer else 0
    new = "" if value is None else "<%s>%s</%s>" % (tag, value.replace("&", "&amp;").replace("<", "&lt;"), tag)
    changed = re.sub("<%s>[^<]*</%s>" % (tag, tag), lambda _m: new, gpus[which][start:], count=1)
    assert changed != gpus[which][start:] or new in gpus[which]
    gpus[which] = gpus[which][:start] + changed
    return "<gpu id=".join([head, *gpus])


def first(text, mig_uuids=None):
    """The reading of the first GPU."""
    return parse(text.encode()).gpus[0].reading(0, PID_MAX, mig_uuids)


def code(reading):
    return reading.failure.code if reading.failure else ""


# ---- sound answers


def test_an_idle_host():
    report = parse(IDLE.encode())
    assert (report.driver_version, report.attached, len(report.gpus)) == ("580.159.04", 2, 2)
    got = report.gpus[1].reading(1, PID_MAX)
    assert got.identity == GpuIdentity(1, uuid(1), "00000000:00:07.0", 1, "NVIDIA H200")
    assert got.memory == MemoryReading(143771, 0, 616, NVIDIA_SMI)
    assert got.processes == ()
    assert got.failure is None
    properties = (got.persistence_mode, got.mig_mode, got.recovery_action, got.addressing_mode)
    assert properties == ("enabled", "disabled", "none", "none")
    assert judge(got, (), Limits()).state == FREE


def test_a_busy_gpu_and_its_neighbour():
    busy, idle = (gpu.reading(i, PID_MAX) for i, gpu in enumerate(parse(BUSY.encode()).gpus))
    assert busy.memory.used_mib == 1643
    assert busy.processes == (ListedProcess(602, COMPUTE, 1634),)
    assert (idle.memory.used_mib, idle.processes) == (4, ())


def test_mig_instances():
    got = first(MIG, {0: "MIG-0", 1: "MIG-1"})
    assert got.mig_mode == "enabled"
    assert got.mig_devices == (
        MigDevice("MIG-0", 7, 0, MemoryReading(16384, 15, 0, NVIDIA_SMI)),
        MigDevice("MIG-1", 9, 0, MemoryReading(16384, 1200, 0, NVIDIA_SMI)),
    )
    assert got.processes == (ListedProcess(4711, COMPUTE, 1180, 9, 0),)
    assert got.memory.used_mib == 1216
    assert parse(MIG.encode()).gpus[0].mig_layout == ((0, 7, 0), (1, 9, 0))
    assert [device.uuid for device in first(MIG).mig_devices] == ["", ""]


def test_a_driver_that_names_mig_instances_in_the_answer():
    named = MIG.replace("<index>1</index>", "<index>1</index><uuid>MIG-4d9f3a00-1</uuid>")
    assert [device.uuid for device in first(named).mig_devices] == ["", "MIG-4d9f3a00-1"]


@pytest.mark.parametrize("word", ["N/A", "Insufficient Permissions"])
def test_with_mig_the_memory_of_the_whole_gpu_may_be_denied(word):
    text = MIG
    for part in ("reserved", "used", "free"):
        before, mark, after = text.partition("</mig_devices>")
        text = before + mark + re.sub("<%s>[^<]*<" % part, "<%s>%s<" % (part, word), after, count=1)
    assert first(text).memory == MemoryReading(32768, 1215, None, MIG_INSTANCES)
    # Where an instance does not tell either, there is no sum.
    assert code(first(text.replace("1200 MiB", word))) in ("not_supported", "no_permission")


def test_an_old_driver_that_counts_its_reserve_as_used():
    text = edited(edited(IDLE, "fb_memory_usage/reserved", None), "fb_memory_usage/used", "615 MiB")
    for path in ("gpu_recovery_action", "addressing_mode"):
        text = edited(text, path, None)
    text = re.sub("<mig_mode>.*?</mig_mode>|<mig_devices>.*?</mig_devices>", "", text, flags=re.DOTALL)
    got = first(text)
    assert got.memory == MemoryReading(143771, 615, None, NVIDIA_SMI_V1)
    assert (got.failure, got.mig_mode, got.recovery_action) == (None, "not_supported", "not_supported")
    assert got.addressing_mode == "not_supported"
    assert "reserves for itself" in judge(got, (), Limits()).message


def test_words_before_and_after_the_answer_do_not_matter():
    text = "WARNING: infoROM is corrupted <at gpu 0>\n" + IDLE + "\nUnable to determine & <\n"
    assert parse(text.encode()).attached == 2


# ---- properties


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("None", "none"),
        ("Reset", "reset"),
        ("Reboot", "node_reboot"),
        ("Drain P2P", "drain_p2p"),
        ("Drain and Reset", "drain_and_reset"),
        ("Recover IMEX Domain", "recover_imex_domain"),
        ("Bus Reset", "bus_reset"),
        ("System Reboot", "system_reboot"),
        ("Something new", UNKNOWN),
        ("Unknown Error", UNKNOWN),
        ("[N/A]", "not_supported"),
    ],
)
def test_recovery_actions(word, name):
    assert first(edited(IDLE, "gpu_recovery_action", word)).recovery_action == name


@pytest.mark.parametrize(
    ("word", "name"), [("None", "none"), ("HMM", "hmm"), ("ATS", "ats"), ("N/A", "not_supported"), ("X", UNKNOWN)]
)
def test_addressing_modes(word, name):
    assert first(edited(IDLE, "addressing_mode", word)).addressing_mode == name


@pytest.mark.parametrize(
    ("word", "name"),
    [("Enabled", "enabled"), ("Disabled", "disabled"), ("N/A", "not_supported"), ("Unknown Error", UNKNOWN)],
)
def test_modes(word, name):
    assert first(edited(IDLE, "persistence_mode", word)).persistence_mode == name
    assert first(edited(IDLE, "mig_mode/current_mig", word)).mig_mode == name


# ---- what is not there


@pytest.mark.parametrize("part", ["total", "used", "free"])
@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_no_figure(part, word):
    got = first(edited(IDLE, "fb_memory_usage/" + part, word))
    assert got.memory is None
    assert got.failure is not None
    assert got.identity is not None
    assert judge(got, (), Limits()).state == UNKNOWN


@pytest.mark.parametrize(
    ("word", "reason", "permanent"),
    [
        ("N/A", "not_supported", True),
        ("[Not Supported]", "not_supported", True),
        ("[Insufficient Permissions]", "no_permission", True),
        ("[GPU is lost]", "lost", True),
        ("GPU requires reset", "reset_required", True),
        ("Unknown Error", "unknown_error", False),
        ("ERR!", "unknown_error", False),
        ("1 GiB", "nvidia_smi_output", False),
    ],
)
def test_why_a_figure_is_not_there(word, reason, permanent):
    failure = first(edited(IDLE, "fb_memory_usage/used", word)).failure
    assert (failure.code, failure.permanent) == (reason, permanent)
    assert word in failure.message


def test_unified_memory_has_no_figures():
    text = IDLE
    for part in ("total", "reserved", "used", "free"):
        text = edited(text, "fb_memory_usage/" + part, "N/A")
    assert (first(text).memory, code(first(text))) == (None, "not_supported")


def test_figures_that_contradict_each_other():
    assert code(first(edited(IDLE, "fb_memory_usage/free", "100 MiB"))) == "inconsistent_memory"
    # What is reserved is hidden, and used does not contain it: neither meaning fits.
    assert code(first(edited(IDLE, "fb_memory_usage/reserved", None))) == "inconsistent_memory"
    assert code(first(edited(IDLE, "fb_memory_usage/reserved", "garbage"))) == "nvidia_smi_output"
    text = IDLE
    for part in ("total", "reserved", "used", "free"):
        text = edited(text, "fb_memory_usage/" + part, "0 MiB")
    assert code(first(text)) == "no_memory_figures"


def test_a_gpu_without_memory_or_with_two():
    usage = re.search("<fb_memory_usage>.*?</fb_memory_usage>", IDLE, flags=re.DOTALL).group()
    assert code(first(IDLE.replace(usage, "", 1))) == "nvidia_smi_output"
    assert code(first(IDLE.replace(usage, usage * 2, 1))) == "nvidia_smi_output"


@pytest.mark.parametrize(
    ("path", "word", "reason"),
    [
        ("uuid", "N/A", "not_supported"),
        ("uuid", "GPU is lost", "lost"),
        ("uuid", "0000", "nvidia_smi_output"),
        ("product_name", "Unknown Error", "unknown_error"),
        ("minor_number", "Unknown Error", "unknown_error"),
        ("minor_number", None, "nvidia_smi_output"),
        ("uuid", None, "nvidia_smi_output"),
    ],
)
def test_a_gpu_that_cannot_be_identified(path, word, reason):
    got = first(edited(IDLE, path, word))
    assert (got.identity, got.memory, code(got)) == (None, None, reason)


def test_wsl_has_no_minor_number():
    got = first(edited(IDLE, "minor_number", "N/A"))
    assert (got.failure, got.identity.minor) == (None, None)


# ---- processes


def rows(*processes):
    """The idle host's answer, with these processes on the first GPU: (pid, type, memory, instances)."""
    form = (
        "<process_info><gpu_instance_id>%s</gpu_instance_id><compute_instance_id>%s</compute_instance_id>"
        "<pid>%s</pid><type>%s</type><process_name>x</process_name><used_memory>%s</used_memory></process_info>"
    )
    body = "".join(form % (gi, ci, pid, kind, memory) for pid, kind, memory, gi, ci in processes)
    return IDLE.replace("<processes>\n\t\t</processes>", "<processes>%s</processes>" % body, 1)


@pytest.mark.parametrize(
    ("word", "kinds"),
    [
        ("C", [COMPUTE]),
        ("G", [GRAPHICS]),
        ("M", [MPS]),
        ("C+G", [COMPUTE, GRAPHICS]),
        ("M+C", [COMPUTE, MPS]),
        ("C+C", [COMPUTE]),
        ("Q", [COMPUTE]),
        ("", [COMPUTE]),
        ("N/A", [COMPUTE]),
    ],
)
def test_kinds_of_processes(word, kinds):
    got = first(rows((4711, word, "10 MiB", "N/A", "N/A")))
    assert got.processes == tuple(ListedProcess(4711, kind, 10) for kind in kinds)


@pytest.mark.parametrize("word", ["N/A", "[N/A]", "Unknown Error", "", "10", "10 GiB"])
def test_memory_of_a_process_that_is_not_known(word):
    (process,) = first(rows((4711, "C", word, "N/A", "3"))).processes
    assert (process.memory_mib, process.gpu_instance, process.compute_instance) == (None, None, 3)


@pytest.mark.parametrize("pid", ["0", "1", str(PID_MAX + 1), "4294967295"])
def test_an_impossible_pid(pid):
    got = first(rows((4711, "C", "10 MiB", "N/A", "N/A"), (pid, "C", "10 MiB", "N/A", "N/A")))
    assert (got.processes, code(got), got.failure.permanent) == ((), "implausible_pid", True)


@pytest.mark.parametrize("pid", ["N/A", "", "-7", "12a", "\u0661\u0662\u0663"])
def test_a_pid_that_is_no_number(pid):
    assert code(first(rows((pid, "C", "10 MiB", "N/A", "N/A")))) in ("not_supported", "nvidia_smi_output")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("<processes/>", ""),
        ("<processes>None</processes>", ""),
        ("<processes>N/A</processes>", "not_supported"),
        ("<processes>Unknown Error</processes>", "unknown_error"),
        ("<processes>Insufficient Permissions</processes>", "no_permission"),
        ("<processes>something</processes>", "nvidia_smi_output"),
        ("<processes><process>1</process></processes>", "nvidia_smi_output"),
        ("<processes/><processes/>", "nvidia_smi_output"),
        ("<compute_processes>N/A</compute_processes>", "nvidia_smi_output"),
        ("", "nvidia_smi_output"),
    ],
)
def test_only_an_empty_list_is_an_empty_list(body, reason):
    got = first(IDLE.replace("<processes>\n\t\t</processes>", body, 1))
    assert (got.processes, code(got)) == ((), reason)


def test_a_row_that_is_not_understood():
    twice = rows((4711, "C", "10 MiB", "N/A", "N/A")).replace("<pid>4711</pid>", "<pid>4711</pid><pid>7</pid>")
    assert code(first(twice)) == "nvidia_smi_output"


def test_a_process_may_call_itself_what_it_likes():
    # nvidia-smi escapes what XML gives a meaning, and nothing else.
    name = b"a &amp; b&lt;c&gt;&quot;\x01\xc3(&lt;/process_name&gt;&lt;pid&gt;1&lt;/pid&gt;\x00\xff"
    raw = BUSY.encode().replace(b"/opt/llm/bin/python3", name)
    (process,) = parse(raw).gpus[0].reading(0, PID_MAX).processes
    assert process == ListedProcess(602, COMPUTE, 1634)


# ---- MIG lists that are not understood


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<mig_devices>", "<mig_gpus>"),
        ("<gpu_instance_id>7<", "<gpu_instance_id>N/A<"),
        ("<index>0<", "<index>x<"),
        ("15 MiB", "ERR!"),
    ],
)
def test_mig_instances_that_cannot_be_read(old, new):
    text = MIG.replace(old, new, 1)
    if old == "<mig_devices>":
        text = text.replace("</mig_devices>", "</mig_gpus>", 1)
    got = first(text)
    assert got.failure is not None
    assert (got.memory, got.mig_devices) == (None, ())
    assert parse(text.encode()).gpus[0].mig_layout == ()


def test_uuids_of_mig_instances():
    listing = (
        "GPU 0: NVIDIA A100 (UUID: GPU-aaaa)\n"
        "  MIG 1g.5gb      Device  0: (UUID: MIG-1111)\n"
        "  MIG 3g.20gb     Device 12: (UUID: MIG-2222)\n"
        "Unable to determine the device handle for gpu 0000:04:00.0: GPU is lost\n"
        "  MIG 1g.5gb      Device  0: (UUID: MIG-9999)\n"
        "GPU 2: NVIDIA A100 (UUID: GPU-bbbb)\n"
    )
    assert parse_mig_uuids(listing) == {"GPU-aaaa": {0: "MIG-1111", 12: "MIG-2222"}, "GPU-bbbb": {}}


def test_versions():
    said = "NVIDIA-SMI version  : 580.159.04\nNVML version        : 580.159\nDRIVER version      : 580.159.04\n"
    assert parse_versions(said) == {"nvml": "580.159", "driver": "580.159.04"}
    assert parse_versions("ERROR: Option --version is not recognized.") == {}


# ---- answers that are none


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<nvidia_smi_log>",
        IDLE[: len(IDLE) // 2],
        IDLE.replace("</gpu>", "", 1),
        IDLE.replace("<attached_gpus>2</attached_gpus>", ""),
        IDLE.replace("<attached_gpus>2", "<attached_gpus>N/A"),
        IDLE.replace("580.159.04</driver", "&xxe;</driver"),
        "</nvidia_smi_log><nvidia_smi_log>",
        "<html>no</html>",
    ],
)
def test_what_is_no_answer(text):
    with pytest.raises(GpuError) as stop:
        parse(text.encode())
    assert stop.value.failure.code in ("nvidia_smi_output", "not_supported")


def test_entities_do_nothing():
    bomb = "<!DOCTYPE x [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'><!ENTITY e SYSTEM 'file:///etc/passwd'>]>"
    for name in ("a", "b", "e"):
        text = bomb + IDLE[IDLE.index("<nvidia_smi_log") :].replace("NVIDIA H200", "&%s;" % name)
        with pytest.raises(GpuError):
            parse(text.encode())


@given(st.binary(max_size=400))
def test_bytes_never_raise_anything_else(output):
    for text in (output, IDLE.encode()[:300] + output, IDLE.encode().replace(b"NVIDIA H200", output)):
        try:
            report = parse(text)
        except GpuError:
            continue
        for index, gpu in enumerate(report.gpus):
            gpu.reading(index, PID_MAX)


PATHS = ["fb_memory_usage/" + part for part in ("total", "reserved", "used", "free")]
PATHS += ["uuid", "product_name", "minor_number", "persistence_mode", "current_mig", "gpu_recovery_action"]
# Text that XML may hold; other characters are a test of their own.
TEXTS = st.one_of(st.text(st.characters(min_codepoint=32, max_codepoint=0xD7FF), max_size=30), st.sampled_from(WORDS))


@given(st.lists(st.tuples(st.sampled_from(PATHS), TEXTS), min_size=1, max_size=5))
def test_no_text_makes_memory_look_free(changes):
    text = edited(IDLE, "fb_memory_usage/used", "5000 MiB")  # more than is said to be free: nothing fits
    for path, value in changes:
        text = edited(text, path, value)
    got = first(text)
    if got.failure is None:  # then every figure was one, and all fit together
        memory = [re.search("<%s>([0-9]+) MiB<" % part, text) for part in ("total", "used", "free")]
        total, used, free = (int(found.group(1)) for found in memory)
        assert (got.memory.total_mib, got.memory.used_mib) == (total, used)
        assert abs(total - used - free - (got.memory.reserved_mib or 0)) <= 64
    else:
        assert judge(got, (), Limits()).state == UNKNOWN


@given(TEXTS)
def test_unreadable_used_memory_is_never_a_number(value):
    got = first(edited(IDLE, "fb_memory_usage/used", value))
    if not re.fullmatch("[0-9]{1,12} MiB", value.strip()):
        assert got.memory is None
        assert judge(got, (), Limits()).state == UNKNOWN


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_texts_of_a_process_never_raise_nor_hide_it(pid, kind, memory, instance):
    values = [value.replace("&", "&amp;").replace("<", "&lt;") for value in (pid, kind, memory, instance)]
    got = first(rows((*values, "N/A")))
    assert got.failure is not None or len(got.processes) >= 1


# ---- errors


@pytest.mark.parametrize(
    ("status", "words", "reason"),
    [
        (18, "Failed to initialize NVML: Driver/library version mismatch", "library_mismatch"),
        (9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "driver_not_loaded"),
        (17, "Failed to initialize NVML: GPU access blocked by the operating system", "operating_system"),
        (255, "Failed to initialize NVML: Unknown Error", "unknown_error"),
        (255, "Unable to determine the device handle for GPU3: 0000:5F:00.0: Unknown Error", "unknown_error"),
        (15, "Unable to determine the device handle for GPU 0000:01:00.0: GPU is lost.", "lost"),
        (0, "Unable to determine the device handle for gpu 0000:01:00.0: Not Found", "not_found"),
        (6, "No devices were found", "not_found"),
        (127, "nvidia-smi: error while loading shared libraries: libnvidia-ml.so.1", "library_not_found"),
        (4, "", "no_permission"),
        (9, "", "driver_not_loaded"),
        (12, "", "library_not_found"),
        (15, "", "lost"),
        (255, "", "unknown_error"),
        (127, "", "unknown_error"),
        (14, "", "nvml_error_14"),
        (-11, "", "crashed"),
        (0, "", "nvidia_smi_output"),
    ],
)
def test_what_a_failed_run_means(status, words, reason):
    failure = smi_errors.exit_failure(status, words, "reading GPU 0")
    assert failure.code == reason
    assert failure.remedy
    assert words in failure.message or not words


def test_words_of_a_run_cannot_steer_a_terminal():
    failure = smi_errors.exit_failure(255, "\x1b[2J" + "x" * 5000, "reading GPU 0")
    assert "\x1b" not in failure.message
    assert len(failure.message) < 500
