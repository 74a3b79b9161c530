"""What tests share: pods, repositories, servers and disks to test with, and the fixtures that hand them out."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
