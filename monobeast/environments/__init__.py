"""Environments: E of them side by side, stepped together, whatever they are made of."""

from monobeast import register_environments
from monobeast.environments.factory import check, make, resolve
from monobeast.environments.spaces import Spaces
from monobeast.environments.vector import EnvStep, VectorEnvironment

__all__ = ["EnvStep", "Spaces", "VectorEnvironment", "check", "make", "resolve"]

register_environments()
