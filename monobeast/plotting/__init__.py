"""Curves of recorded runs. Imports no torch, and matplotlib only for drawing."""
