"""A headless Chromium for tests that look at pages; they are skipped where there is none."""

import shutil
import subprocess
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 300  # seconds: a loaded machine starts a browser slowly


def browse(url: str, profile: Path, width: int = 1000) -> tuple[str, list[str]]:
    """(the page's DOM after its scripts ran, what its console said)."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium here (Debian: apt install chromium)")
    command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    command += ["--enable-logging=stderr", f"--window-size={width},900", "--virtual-time-budget=4000", "--dump-dom"]
    done = subprocess.run([*command, url], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
