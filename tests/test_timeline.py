"""The Chrome trace of a run."""

import json

import pytest

import monobeast
from monobeast.timeline import Timeline

CATCH = {"env": "monobeast/Catch-v0", "device": "cpu", "num_learner_threads": 1, "seed": 1, "disable_checkpoint": True}


def spans_of(path):
    return [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]


def test_the_last_five_seconds_of_ten_are_written_in_microseconds(tmp_path):
    timeline = Timeline(tmp_path / "trace.json")
    timeline.add(7, "learner", "before the first update", 90.0, 99.0)
    timeline.start(100.0)
    timeline.start(105.0)  # has begun already
    timeline.add(7, "learner", "warm-up", 101.0, 102.0)
    timeline.add(8, "actor 0", "rollout", 104.0, 108.0)
    timeline.add(7, "learner", "update", 109.0, 109.5)
    assert not (tmp_path / "trace.json").exists()

    timeline.add(7, "learner", "copy", 110.5, 111.0)
    timeline.add(7, "learner", "after", 111.0, 112.0)
    timeline.write()

    names = [event for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if event["ph"] == "M"]
    assert [(event["pid"], event["args"]["name"]) for event in names] == [(7, "learner"), (8, "actor 0")]
    assert [tuple(span[key] for key in ("pid", "name", "ts", "dur")) for span in spans_of(tmp_path / "trace.json")] == [
        (8, "rollout", 0.0, 2e6),  # what began before the window is cut
        (7, "update", 3e6, 0.5e6),
        (7, "copy", 4.5e6, 0.5e6),
    ]


def test_a_file_that_cannot_be_written_ends_no_run(tmp_path, caplog):
    timeline = Timeline(tmp_path / "no folder" / "trace.json")
    timeline.start(0.0)
    timeline.add(7, "learner", "update", 1.0, 2.0)

    timeline.write()

    assert "cannot be written: No such file or directory" in caplog.text


def test_a_folder_that_is_not_there_is_refused_before_the_start(tmp_path):
    path = str(tmp_path / "no folder" / "trace.json")

    with pytest.raises(ValueError, match=f"--timeline {path}: must be a file in a folder that can be written to"):
        monobeast.train(monobeast.Config(**CATCH, timeline=path, savedir=str(tmp_path)))


@pytest.mark.parametrize("num_actors", [0, 2])
def test_a_run_leaves_a_trace_of_all_its_processes_on_one_clock(tmp_path, num_actors):
    # Enough steps for the actor that starts last to have its part in them.
    settings = CATCH | {"timeline": str(tmp_path / "trace.json"), "total_steps": 8000, "savedir": str(tmp_path)}

    monobeast.train(monobeast.Config(num_actors=num_actors, **settings))

    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    all_spans = spans_of(tmp_path / "trace.json")
    assert sorted(names.values()) == [*(f"actor {i}" for i in range(num_actors)), "learner"]
    spans = {name: [span for span in all_spans if span["pid"] == pid] for pid, name in names.items()}
    own = {"copy", "wait for rollouts"} if num_actors else {"rollouts"}
    # The first update is the clock's beginning; there is a row of the log at the end alone.
    assert {span["name"] for span in spans["learner"]} - {"log"} == own | {"update", "publish weights", "statistics"}
    for of_one in spans.values():
        of_one.sort(key=lambda span: span["ts"])
        for span, following in zip(of_one, of_one[1:], strict=False):
            assert span["ts"] + span["dur"] <= following["ts"] + 1  # microseconds, of rounding
    if num_actors:
        ends = sorted(span["ts"] + span["dur"] for span in all_spans if span["name"] == "rollout")
        copies = [span["ts"] for span in spans["learner"] if span["name"] == "copy"]
        for end, copy in zip(reversed(ends), reversed(copies), strict=False):
            assert end <= copy  # the last rollout that was copied was made before, and so on
