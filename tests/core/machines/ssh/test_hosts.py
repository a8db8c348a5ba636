"""Which hosts the user's ssh configuration names."""

from __future__ import annotations

from pathlib import Path

from devexplorer.core.machines.ssh.hosts import configured


def test_names_are_listed_and_patterns_left_out(tmp_path: Path) -> None:
    (tmp_path / "config.d").mkdir()
    (tmp_path / "config.d" / "work").write_text('Host "node 1" node2\nHOST=node3 # the new one\n')
    (tmp_path / "config").write_text(
        "# Host commented\nInclude config.d/*\nInclude config missing\n\nHost gpu1 *.example.org !bad gpu?\n"
        "  HostName 192.0.2.1\n\tUser me\nHost *\nMatch host other\nhost gpu1 last\nHost 'open\n"
        "Host evil\x1b[2J -oProxyCommand=x\n"
    )
    assert configured(tmp_path / "config") == ("node2", "node3", "gpu1", "last")


def test_no_configuration_names_no_host(tmp_path: Path) -> None:
    assert configured(tmp_path / "config") == ()
    (tmp_path / "config").write_bytes(b"\x00" * (1 << 20) + b"\nHost gpu1\n")
    assert configured(tmp_path / "config") == ()
