"""A module in the place of wandb, that keeps what it is told."""

import types


class StubRun:
    """A run that was begun."""

    def __init__(self, arguments):
        self.arguments, self.rows, self.axes, self.is_finished = arguments, [], {}, False
        self.offline, self.url = arguments["mode"] == "offline", "https://example.org/run"

    def define_metric(self, name, step_metric=None):
        self.axes[name] = step_metric

    def log(self, row):
        self.rows.append(row)

    def finish(self):
        self.is_finished = True


class StubWandb(types.ModuleType):
    """Has what a sink calls, and the runs that were begun."""

    def __init__(self, is_logged_in=False):
        super().__init__("wandb")
        self.runs, self.is_logged_in = [], is_logged_in

    def login(self, prompt, verify):
        assert not prompt and not verify  # a run must not wait for somebody to answer
        return self.is_logged_in

    def init(self, **arguments):
        self.runs.append(StubRun(arguments))
        return self.runs[-1]

    @staticmethod
    def Settings(**settings):
        return settings
