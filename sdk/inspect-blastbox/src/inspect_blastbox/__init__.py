"""Boxes of blastbox as sandboxes of inspect-ai: `sandbox="blastbox"`, or `sandbox=("blastbox", "IMAGE")`."""

from .provider import BlastboxEnvironment

__all__ = ["BlastboxEnvironment"]
