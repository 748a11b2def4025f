"""Environments: E of any kind, stepped together."""

from monobeast.environments.factory import check, make, resolve
from monobeast.environments.own import EnvironmentMaker
from monobeast.environments.spaces import Spaces
from monobeast.environments.vector import EnvStep, VectorEnvironment
from monobeast.registration import register_environments

__all__ = ["EnvStep", "EnvironmentMaker", "Spaces", "VectorEnvironment", "check", "make", "resolve"]

register_environments()
