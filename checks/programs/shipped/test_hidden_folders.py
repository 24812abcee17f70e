"""Mounts as the exporter's DaemonSet asks for them: what is hidden stays hidden, and holds nobody up."""

import subprocess
from pathlib import Path

import pytest

from checks.programs.shipped.containers import can_isolate

SCRIPT = r"""
set -eu
cd "$1"
mount --make-rprivate /
mkdir -p kubelet/pods/uid/volumes/secret container empty
mount --bind kubelet kubelet
mount --make-rshared kubelet                  # as a kubelet does with its directory
mount -t tmpfs old kubelet/pods/uid/volumes/secret
echo password > kubelet/pods/uid/volumes/secret/file
mkdir -p kubelet/pods/uid/volumes/later

mkfifo ready go
unshare --mount --propagation unchanged sh -euc '
  mount --rbind kubelet container
  mount --make-rslave container               # mountPropagation: HostToContainer
  mount -o bind,remount,ro container
  mount --bind -o ro empty container/pods
  echo > ready
  read -r line < go
  find container -type f
  grep -c "container/pods/uid" /proc/self/mountinfo || true
' > found &

read -r line < ready
mount -t tmpfs new kubelet/pods/uid/volumes/later
echo password > kubelet/pods/uid/volumes/later/file
umount kubelet/pods/uid/volumes/secret        # fails where the container keeps it mounted
rmdir kubelet/pods/uid/volumes/secret         # EBUSY where any mount namespace has it as a mount point
echo > go
wait
"""


def test_pod_volumes_stay_hidden_and_removable_while_the_exporter_runs(
    tmp_path: Path,
) -> None:
    if why := can_isolate():
        pytest.skip(why)
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", SCRIPT, "sh", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    # No file is seen, and of the two volumes only that of the pod that runs is mounted.
    assert (tmp_path / "found").read_text().splitlines() == ["1"]
