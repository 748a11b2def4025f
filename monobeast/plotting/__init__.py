"""Curves of recorded runs. Imports neither torch nor, before something is drawn, matplotlib."""
