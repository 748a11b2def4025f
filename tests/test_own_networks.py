"""A network of the user's own: what is refused, and that it is trained, played and gone on with as any other."""

import json
import math

import pytest
import torch
from command_lines import run
from csv_rows import rows_of
from gymnasium.spaces import Box, Discrete
from network_inputs import ACTIONS, NUM_ACTIONS, VECTOR, random_inputs, unroll
from stub_networks import Recurrent

from monobeast.actor import ActorTask, make_actor
from monobeast.config import Config
from monobeast.distributions import Categorical
from monobeast.environments import Spaces
from monobeast.inline_actor import InlineActor
from monobeast.makers import Makers
from monobeast.networks import OwnNetwork, make_network
from monobeast.networks.contract import make_inputs
from monobeast.resources import dry_update
from monobeast.runs import checkpoint
from monobeast.training import train
from monobeast.weights import SharedWeights

ENV = "stub_environments:Fixed5-v0"  # float32 [3] in, two actions
SETTINGS = {"env": ENV, "num_actors": 0, "num_learner_threads": 1, "seed": 1, "xpid": "run", "total_steps": 400}


def begin(tmp_path, network, **settings):
    config = Config(**SETTINGS | {"savedir": str(tmp_path), "network": f"stub_networks:{network}"} | settings)
    return train(config)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("no_such_module:Net", "named 'no_such_module', neither in this folder nor installed"),
        ("no_such_module.py:Net", "; did you mean no_such_module:Net?"),
        ("stub_networks:Plain.foward", "has no 'Plain.foward'; did you mean stub_networks:Plain.forward?"),
        ("stub_networks:Plane", "module 'stub_networks' has no 'Plane'; did you mean stub_networks:Plain?"),
        ("NOT_CALLABLE", "its call with (observation_space, num_actions) failed with TypeError: 'int' object is not"),
        ("NoArguments", "its call with (observation_space, num_actions) failed with TypeError: NoArguments.__init__()"),
        ("Raises", "num_actions) failed with RuntimeError: no network today (stub_networks.py, line "),
        ("make_nothing", "gave a NoneType: must be a torch.nn.Module"),
        ("NoState", "has no method initial_state(batch_size)"),
        ("NoForward", 'with T = 1, B = 2, forward failed with NotImplementedError: Module [NoForward] is missing the'),
        ("NoParameters", "has no parameters that learn"),
        ("AllFrozen", "has no parameters that learn"),
        ("NaNWeight", "parameter body.bias is not finite"),
        ("DoubleWeights", "parameter body.weight is float64 on cpu: must be float32 on cpu"),
        ("Lazy", "parameter body.weight is of a lazy layer: must have its shape from the start"),
        ("ExtraState", "its state_dict has a dict as _extra_state: must hold tensors alone"),
        ("Normalized", "forward changes the buffer norm.running_mean: actors get the parameters alone"),
        ("ListState", "initial_state(2) gave a list: must be a tuple of tensors"),
        ("IntState", "initial_state(2)[0] is int64 [1, 2, 8]: must be float32 [L, 2, H]"),
        ("StateWithoutColumns", "initial_state(2)[0] is float32 [1, 1, 8]: must be float32 [L, 2, H]"),
        ("RaisesInState", "initial_state(2) failed with KeyError: 'size'"),
        ("OneOutput", "forward gave a Tensor: must be (policy_logits, baseline, core_state)"),
        ("TwoOutputs", "forward gave (a Tensor, a Tensor): must be (policy_logits, baseline, core_state)"),
        ("MoreActions", "with T = 1, B = 2, forward's policy_logits is float32 [1, 2, 4]: must be float32 [1, 2, 2]"),
        ("LastStepAlone", "with T = 3, B = 2, forward's policy_logits is float32 [1, 2, 2]: must be float32 [3, 2, 2]"),
        ("DoubleLogits", "forward's policy_logits is float64 [1, 2, 2]: must be float32 [1, 2, 2], [T, B, A]"),
        ("HalfBaseline", "forward's baseline is bfloat16 [1, 2]: must be float32 [1, 2], [T, B]"),
        ("BaselineOfOne", "forward's baseline is float32 [1, 2, 1]: must be float32 [1, 2], [T, B]"),
        ("NaNLogits", "with T = 1, B = 2, forward's policy_logits is not finite"),
        ("Detached", "policy_logits carry no gradient: nothing could be learned"),
        ("StateGrows", "forward's core_state[0] is float32 [1, 2, 16]: must be float32 [1, 2, 8], as initial_state"),
        ("StateIsLost", "forward's core_state has length 0: must be 1, as initial_state's"),
        ("RaisesInForward", "with T = 1, B = 2, forward failed with RuntimeError: mat1 and mat2 shapes"),
        ("RaisesInForward", " (stub_networks.py, line "),  # not torch's, in which it is raised
        ("Plain --use_lstm", "exclude each other; a network of your own keeps its own state"),
    ],
)
def test_what_is_off_is_said_in_a_line_that_names_the_flag_before_anything_starts(tmp_path, capfd, network, message):
    name, *flags = network.split()
    value = name if ":" in name else f"stub_networks:{name}"

    exit_code, output, errors = run(capfd, "--env", ENV, "--network", value, *flags, "--savedir", tmp_path)

    assert (exit_code, output, errors.count("\n")) == (2, "", 1)
    assert f"--network {value}: " in errors and message in errors
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", ["resnet", "a:", ":B", "a: b"])
def test_a_value_that_names_no_class_is_refused(value):
    with pytest.raises(ValueError, match=f"--network {value}: must be one of auto, .*, torchbeast, module:Class"):
        Config(network=value)


@pytest.mark.parametrize("network", ["Plain", "Recurrent", "RandomFeatures", "Caching", "Frozen", "make_plain"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_sound_one_is_trained(tmp_path, network, precision):
    result = begin(tmp_path, network, precision=precision)

    assert result.state == "complete"
    row = rows_of(result.folder / "logs.csv")[-1]
    assert row["bad_updates"] == "0" and row["feature_std"] == "" and float(row["logits_std"]) > 0
    filled = {name: row[name] != "" for name in row if name.startswith("dead")}
    relus = {"dead_units_1": True, "dead_units_2": False, "dead_units_3": False}  # one of no units, one never called
    assert filled == (relus if network == "Recurrent" else {})
    weights = checkpoint.load(result.folder)["learner"]["network"]
    assert {"body.weight", "policy.weight"} <= set(weights)  # as they are named in the user's own module


@pytest.mark.parametrize("start_method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_it_acts_in_processes_of_its_own(tmp_path, start_method):
    result = begin(tmp_path, "Recurrent", num_actors=1, start_method=start_method)

    assert result.state == "complete"
    assert json.loads((result.folder / "meta.json").read_text())["config"]["network"] == "stub_networks:Recurrent"


@pytest.mark.parametrize("network", ["Recurrent", "RandomFeatures"])  # the second has a buffer
def test_it_is_evaluated_beside_training_and_its_best_weights_are_played(tmp_path, capfd, network):
    result = begin(tmp_path, network, evaluate_every=100, evaluate_episodes=2)

    assert rows_of(result.folder / "evaluations.csv")[-1]["mean_episode_return"] == "5"
    named = ["--env", ENV, "--network", f"stub_networks:{network}"]
    exit_code, output, errors = run(capfd, "test", "--best", "--savedir", tmp_path, *named, "--num_episodes", 2)
    assert (exit_code, errors) == (0, "")
    assert "return over 2 episodes: mean 5.00" in output


def test_every_process_draws_the_same_buffers():
    settings = {"network": "stub_networks:RandomFeatures", "envs_per_actor": 2}
    config = Config(**SETTINGS | settings, preset="classic", reward_clipping="none")
    spaces = Spaces(Box(-math.inf, math.inf, (3,)), Discrete(2))
    torch.manual_seed(3)
    of_learner, before = Makers().make_network(config, spaces), torch.get_rng_state()
    torch.manual_seed(4)

    actor = make_actor(ActorTask(config, spaces, 0, 0, SharedWeights(of_learner.parameters())))

    assert torch.equal(actor._policy._network.state_dict()["weight"], of_learner.state_dict()["weight"])
    actor.close()
    torch.manual_seed(3)
    assert torch.equal(before, torch.get_rng_state())  # the caller's random numbers stayed its own


def test_it_computes_what_the_module_does_and_takes_the_modules_weights():
    module = Recurrent(VECTOR, NUM_ACTIONS)
    own = make_network(VECTOR, ACTIONS, "stub_networks:Recurrent")
    own.load_state_dict(module.state_dict())
    inputs = random_inputs(VECTOR)

    expected, found = unroll(module, inputs), unroll(own, inputs)

    assert all(torch.equal(one, other) for one, other in zip((*expected[:2], *expected[2]), (*found[:2], *found[2])))


def test_in_bfloat16_it_multiplies_so_and_gives_float32():
    module = Recurrent(VECTOR, NUM_ACTIONS)
    distribution, inputs = Categorical(NUM_ACTIONS), random_inputs()
    exact, rounded = (unroll(OwnNetwork(module, distribution, name), inputs) for name in ("float32", "bfloat16"))

    for one, other in zip((*exact[:2], *exact.core_state), (*rounded[:2], *rounded.core_state)):
        assert other.dtype == torch.float32 and not torch.equal(one, other)
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.05)  # bfloat16 keeps 8 bits


@pytest.mark.parametrize("space", [Discrete(5), Box(0, 255, (4, 6), "uint8"), Box(-3e38, 3e38, (3,))], ids=str)
def test_every_space_has_observations_to_try_it_with(space):
    inputs = make_inputs(space, Categorical(3), num_steps=4)

    assert inputs.observation.shape == (4, 2, *space.shape) and inputs.observation.double().abs().max() <= 1000
    assert make_network(space, Discrete(3), "stub_networks:Plain")(inputs, ()).policy_params.shape == (4, 2, 3)


def test_a_copy_of_it_learns_as_where_the_memory_of_a_gpu_is_measured():
    config = Config(**SETTINGS, preset="classic", reward_clipping="none", device="cpu")
    network = make_network(VECTOR, ACTIONS, "stub_networks:Recurrent")
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}

    dry_update._update(config, Spaces(VECTOR, ACTIONS), network)

    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


NAMED = ["--env", ENV, "--network", "stub_networks:Recurrent"]


@pytest.fixture(scope="module")
def savedir(tmp_path_factory):
    """The folder of a run named `run`."""
    folder = tmp_path_factory.mktemp("runs")
    begin(folder, "Recurrent")
    return folder


def test_it_is_played(savedir, capfd):
    exit_code, output, errors = run(capfd, "test", "--savedir", savedir, *NAMED, "--num_episodes", 2)

    assert (exit_code, errors) == (0, "")
    assert "return over 2 episodes: mean 5.00" in output


def test_its_weights_are_written_as_its_class_takes_them(savedir, tmp_path, capfd):
    arguments = ["export", "run", "--savedir", savedir, *NAMED, "--state_dict", tmp_path / "weights.pt"]

    assert run(capfd, *arguments)[0] == 0

    module = Recurrent(Box(-1, 1, (3,)), 2)
    module.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
    saved = checkpoint.load(savedir / "run")["learner"]["network"]
    assert all(torch.equal(saved[name], tensor) for name, tensor in module.state_dict().items())


@pytest.mark.slow
def test_its_onnx_file_has_a_numbered_state(savedir, tmp_path, capfd):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime runs the file; it is in the extra test")
    pytest.importorskip("onnxscript", reason="onnxscript writes the file; it is in the extra onnx")

    assert run(capfd, "export", "run", "--savedir", savedir, *NAMED, "--onnx", tmp_path / "network.onnx")[0] == 0

    session = onnxruntime.InferenceSession(tmp_path / "network.onnx", providers=["CPUExecutionProvider"])
    module = Recurrent(space := Box(-1, 1, (3,)), 2)
    module.load_state_dict(checkpoint.load(savedir / "run")["learner"]["network"])
    for num_columns in (1, 3):
        inputs = random_inputs(space, 1, num_columns)
        state = torch.randn(1, num_columns, 8, generator=torch.Generator().manual_seed(1))
        names = [*inputs._fields, "state_0"]
        given = {name: tensor.numpy() for name, tensor in zip(names, (*inputs, state))}
        given = {each.name: given[each.name] for each in session.get_inputs()}  # it looks at no action and no reward
        found = session.run(["policy_logits", "baseline", "next_state_0"], given)
        logits, baseline, (after,) = unroll(module, inputs, (state,))
        expected = [logits, baseline, after]
        torch.testing.assert_close([torch.from_numpy(each) for each in found], expected, rtol=1e-4, atol=1e-5)


def test_a_plan_of_it_is_made(tmp_path, capfd):
    exit_code, output, _ = run(capfd, "plan", *NAMED, "--device", "cpu", "--savedir", tmp_path)

    assert exit_code == 0 and "with the stub_networks:Recurrent network" in output.splitlines()[0]


def test_a_run_of_it_goes_on_and_another_name_or_other_weights_are_refused(tmp_path, capfd):
    begin(tmp_path, "make_wide")
    command = ["--resume", "--xpid", "run", "--savedir", tmp_path, "--total_steps", 800, "--env", ENV, "--network"]

    for other in ("stub_networks:Plain", "auto"):
        exit_code, _, errors = run(capfd, *command, other)
        assert exit_code == 2 and f"--network {other}: cannot change on --resume; the run began with stub_net" in errors
    content = checkpoint.load(tmp_path / "run")
    content["learner"]["network"]["body.bias"] = torch.zeros(3)
    checkpoint.save(tmp_path / "run", content)
    exit_code, _, errors = run(capfd, *command, "stub_networks:make_wide")
    wanted = "--resume: the weights of run do not fit --network stub_networks:make_wide as it is now: body.bias is [3] "
    assert exit_code == 2 and wanted + "in the saved weights, [16] in this network\n" in errors
    (tmp_path / "run" / checkpoint.FILE_NAME).unlink()  # the one before is taken
    assert run(capfd, *command, "stub_networks:make_wide")[0] == 0
    assert checkpoint.load(tmp_path / "run")["learner"]["step"] == 800


def test_another_name_is_played_where_its_weights_are_the_same(tmp_path, capfd):
    begin(tmp_path, "make_plain")
    command = ["test", "--savedir", tmp_path, "--num_episodes", 1, "--env", ENV, "--network"]

    assert run(capfd, *command, "stub_networks:Plain")[0] == 0
    exit_code, _, errors = run(capfd, *command, "stub_networks:make_wide")
    folder = tmp_path / "run"
    wanted = f"--network stub_networks:make_wide: not that of the checkpoint in {folder}: body.weight is [8, 3] "
    assert exit_code == 2 and wanted + "in the saved weights, [16, 3] in this network\n" in errors
    exit_code, _, errors = run(capfd, *command, "mlp")
    assert exit_code == 2 and f"--network mlp: the checkpoint in {folder} is of the stub_networks:make_plain" in errors


def test_an_update_that_was_not_finite_is_repeated(tmp_path, capfd, monkeypatch):
    intact = InlineActor.get_batch

    def spoil(self, timeout_s):
        batch = intact(self, timeout_s)
        batch.reward[2, 1] = math.nan
        return batch

    monkeypatch.setattr(InlineActor, "get_batch", spoil)
    begin(tmp_path, "Frozen", max_bad_updates=2)
    named = ["--env", ENV, "--network", "stub_networks:Frozen"]
    output, _ = capfd.readouterr()
    assert f"replay-update {tmp_path / 'run' / 'bad_batch.pt'} {' '.join(named)}\n" in output

    exit_code, output, errors = run(capfd, "replay-update", tmp_path / "run" / "bad_batch.pt", *named)

    assert (exit_code, errors) == (1, "") and "first: reward is not finite" in output
    wide = ["--env", ENV, "--network", "stub_networks:make_wide"]
    exit_code, _, errors = run(capfd, "replay-update", tmp_path / "run" / "bad_batch.pt", *wide)
    assert exit_code == 2 and "its weights are not of --network stub_networks:make_wide as it is now: body" in errors


def test_frozen_parameters_stay_and_the_others_learn(tmp_path):
    result = begin(tmp_path, "Frozen")

    content = checkpoint.load(result.folder)
    config, spaces = checkpoint.read_config(content, result.folder), Spaces(Box(-math.inf, math.inf, (3,)), Discrete(2))
    first, last = Makers().make_network(config, spaces).state_dict(), content["learner"]["network"]
    changed = {name for name, tensor in last.items() if not torch.equal(tensor, first[name])}
    assert changed == {f"{part}.{kind}" for part in ("policy", "baseline") for kind in ("weight", "bias")}
