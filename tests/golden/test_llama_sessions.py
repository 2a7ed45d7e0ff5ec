"""llama.cpp's session files (sessions/README.md): continued as llama.cpp does, written again with the same bytes, and
refused if anything is wrong. With PEER=path/to/llama.cpp/build/bin also both ways with the program."""

import json
import os
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import random_checkpoints

from hybrid.convert import convert
from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.generate import generate
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.answers.state_files.llama_states import export_session, import_session
from hybrid.infer.answers.state_files.saved_states import restored
from hybrid.infer.memory.llama_session import GGSQ, context_for, tokens_in
from hybrid.infer.text.encode import continuation_ids
from hybrid.quant.ggml.errors import HybridError, Remedy, StateError, UsageError

pytestmark = pytest.mark.exhaustive

SESSIONS = Path(__file__).with_name("sessions")
EXPECTED = json.loads((SESSIONS / "expected.json").read_text(encoding="utf-8"))
NAMES = list(EXPECTED["texts"])
PEER = os.environ.get("PEER", "")


@pytest.fixture(params=NAMES)
def model(request: pytest.FixtureRequest, converted: Callable[..., Path]) -> Iterator[LoadedModel]:
    with LoadedModel.load(converted(request.param), n_ctx=128) as loaded:
        yield loaded


def session_of(model: LoadedModel) -> Path:
    return SESSIONS / f"{model.path.stem.removesuffix('-f32')}.session"


def goes_on(model: LoadedModel, state: Path, more: str, n: int) -> str:
    sampler = Sampler(SamplingParams(temp=0), model.n_vocab)
    seq = restored(model, state, sampler)
    ids = continuation_ids(model.tokenizer, more) if more else []
    run = generate(seq, ids, sampler, max_tokens=n)
    text = "".join(piece.text for piece in run)
    seq.close()
    return text


def test_it_goes_on_as_llama_cpp_does(model: LoadedModel, tmp_path: Path) -> None:
    session = session_of(model)
    seq = import_session(model, session)
    n = tokens_in(session)
    assert len(seq.tokens) == n - 1 and len(seq.pending) == 1, (
        "llama-completion computes the last token when it goes on"
    )
    said = model.tokenizer.decode([*seq.tokens, *seq.pending])
    assert said.endswith(EXPECTED["prompt"])
    seq.save(tmp_path / "state")
    seq.close()
    name = session.stem
    assert goes_on(model, tmp_path / "state", EXPECTED["more"], EXPECTED["n"]) == EXPECTED["texts"][name]
    seq = model.restore(tmp_path / "state")
    size = export_session(seq, tmp_path / "again")
    assert size == session.stat().st_size and (tmp_path / "again").read_bytes() == session.read_bytes()


def test_other_forms_come_back(model: LoadedModel, tmp_path: Path) -> None:
    """One sequence, transposed values: the state after every token, bit for bit."""
    seq = model.sequence()
    seq.prefill([5, 6, 7, 8, 9])
    want = {name: array.tobytes() for name, array in model.memory.export(seq.slot)}
    for transposed in (False, True):
        export_session(seq, tmp_path / "s", whole=False, transposed=transposed)
        assert struct.unpack("<I", (tmp_path / "s").read_bytes()[:4]) == (GGSQ,)
    seq.close()
    again = import_session(model, tmp_path / "s")
    if model.memory.is_recurrent:
        assert again.tokens == [5, 6, 7, 8, 9] and again.pending == []
        assert {name: array.tobytes() for name, array in model.memory.export(again.slot)} == want
        with pytest.raises(UsageError, match="and this state has none") as caught:
            export_session(again, tmp_path / "s")
        assert caught.value.remedy is Remedy.GENERATE_ONE_TOKEN
    else:
        assert again.tokens == [5, 6, 7, 8] and again.pending == [9], "can be gone on with at once"
        export_session(again, tmp_path / "t", transposed=True)
        assert tokens_in(tmp_path / "t") == 5


def test_positions_with_gaps_come_back(converted: Callable[..., Path], tmp_path: Path) -> None:
    ids, path = [*range(5, 25)], tmp_path / "gap"
    with LoadedModel.load(converted("llama-unigram-bin"), n_ctx=64, checkpoint_budget=1 << 20) as model:
        seq = model.sequence()
        seq.prefill(ids)
        seq.remove(4, 9)
        with pytest.raises(UsageError, match=r"not take positions with gaps") as caught:
            seq.extra = {"pending": [7]}
            export_session(seq, path)
        assert caught.value.remedy is Remedy.ONE_SEQUENCE
        export_session(seq, path, whole=False)
        # the last token is computed again, without the removed ones
        assert seq.rewind(14) == 14 and seq.is_shifted
        seq.decode(24)
        want = seq.decode(30)
        seq.close()
        data = path.read_bytes()
        cells = 12 + 4 * 15 + 8  # magic, version, tokens; streams and cells
        assert [struct.unpack_from("<i", data, cells + 12 * i)[0] for i in range(15)] == [*range(4), *range(9, 20)]
        again = import_session(model, path)
        assert again.tokens == [*ids[:4], *ids[9:19]] and again.pending == [24] and again.is_shifted
        again.decode(24)
        assert np.array_equal(again.decode(30), want)
        again.close()
        cached = model.cache.find([*ids[:4], *ids[9:], 30]) if model.cache else None
        assert cached is not None and cached.position == 4, "no text that has the gap"
        assert context_for(path) == 20 and tokens_in(path) == 15
        refused(model, path, data[:cells] + struct.pack("<i", 3) + data[cells + 4 :], "negative or repeated")
    with (
        LoadedModel.load(converted("llama-unigram-bin"), n_ctx=19) as model,
        pytest.raises(StateError, match=r"goes to position 19, the context is 19\.$"),
    ):
        path.write_bytes(data)
        import_session(model, path)
    with LoadedModel.load(converted("jamba-11m"), n_ctx=64) as model:
        seq = model.sequence()
        seq.prefill(ids)
        export_session(seq, path, whole=False)
        seq.close()
        data = path.read_bytes()
        at = 12 + 4 * 20 + 8 + 12 * 19
        refused(model, path, data[:at] + struct.pack("<i", 40) + data[at + 4 :], "to position 40, recurrent .* 19")


def test_a_sequence_that_llama_cpp_removed_tokens_from(converted: Callable[..., Path]) -> None:
    options = {"n_ctx": 64, "kv_type": "f32", "precision": "exact"}
    with LoadedModel.load(converted("llama-unigram-bin"), **options) as model:
        seq = import_session(model, SESSIONS / "llama-unigram-bin-gap.session")
        assert seq.tokens == [3, 10, 11, 12, 18, 19, 20, 21] and seq.pending == [22]
        assert model.memory.positions[seq.slot].of(0, 9).tolist() == [0, 1, 2, 3, 9, 10, 11, 12, 13]
        token, said = 22, []
        for _ in range(12):
            token = int(seq.decode(token).argmax())
            said.append(token)
        assert said == [1988, 159, 1232, 1, 1, 1, 1, 1, 161, 317, 615, 1988], "as llama.cpp goes on"


def test_slots_of_llama_server(model: LoadedModel, tmp_path: Path) -> None:
    """Their tokens are packed."""
    ids, path = [5, 6, 7, 8, 9], tmp_path / "slot"
    seq = model.sequence()
    seq.prefill(ids)
    export_session(seq, path, whole=False)
    seq.close()
    plain = path.read_bytes()

    def packed(*tokens: int) -> bytes:
        return plain[:8] + struct.pack(f"<I{len(tokens)}i", len(tokens), *tokens) + plain[12 + 4 * len(ids) :]

    path.write_bytes(packed(-1, 1, 5, *ids, 0))
    seq = import_session(model, path)
    assert [*seq.tokens, *seq.pending] == ids
    seq.close()
    for tokens, says in (
        ((-1, 2, 5, *ids, 0), "form other than 1"),
        ((-1,), "form other than 1"),
        ((-1, 1, 6, *ids, 0), "claims 6 tokens, 5 are there"),
        ((-1, 1, -1, *ids, 0), "claims -1 tokens"),
        ((-1, 1, 5, *ids, 1), "holds images or sounds"),
        ((-1, 1, 4, *ids, 0), "holds images or sounds"),
    ):
        refused(model, path, packed(*tokens), says)


def test_every_truncation_and_every_changed_number_is_refused(model: LoadedModel, tmp_path: Path) -> None:
    """Numbers of the layout. These files have no checksum: other values of states are other states."""
    data = session_of(model).read_bytes()
    path = tmp_path / "s"
    n = struct.unpack_from("<I", data, 8)[0]
    begin = 12 + 4 * n
    memory = begin + 4 + struct.unpack_from("<I", data, begin)[0]
    edges = [*range(0, memory + 200, 3), *np.linspace(memory, len(data) - 1, 40).astype(int).tolist()]
    for at in edges:
        refused(model, path, data[:at], "cut off|bytes")
    refused(model, path, data + b"\0", "1 bytes are left")
    for at in (0, 4, 8, begin, begin + 4):
        for value in (0, 1, 0x7FFFFFFF, 0xFFFFFFFF):
            refused(model, path, data[:at] + struct.pack("<I", value) + data[at + 4 :])
    # streams, cells, position, number of ids; without attention cells, position, number of ids
    for at in range(memory, memory + (16 if model.memory.attention.specs else 12), 4):
        first_position = at == memory + 8 and model.memory.attention.specs
        for value in (2 if first_position else 7, 0x7FFFFFFF, 0xFFFFFFFF):  # if position is not 0, 7 would leave a gap
            refused(model, path, data[:at] + struct.pack("<I", value) + data[at + 4 :])
    refused(model, path, data[:12] + struct.pack("<i", -1) + data[16:], "vocabulary of")
    last = len(data) - 4
    refused(model, path, data[:last] + struct.pack("<f", float("nan")), "not finite")
    assert model.n_free == 1, "no sequence is left behind"


def refused(model: LoadedModel, path: Path, data: bytes, says: str = "") -> None:
    path.write_bytes(data)
    with pytest.raises(StateError, match=says or None) as caught:
        import_session(model, path)
    assert "\n" not in str(caught.value) and path.name in str(caught.value)


def test_what_does_not_match_is_said(converted: Callable[..., Path], tmp_path: Path) -> None:
    session = SESSIONS / "llama-unigram-bin.session"
    with (
        LoadedModel.load(converted("mamba-bf16"), n_ctx=64) as model,
        pytest.raises(StateError, match="was saved by a 'llama' model, this one is 'mamba'"),
    ):
        import_session(model, session)
    with (
        LoadedModel.load(converted("llama-unigram-bin"), n_ctx=64, kv_type="f32") as model,
        pytest.raises(StateError, match=r"keeps blk\.0\.k in f16, this model in f32\.$") as caught,
    ):
        import_session(model, session)
    assert (caught.value.remedy, caught.value.value) == (Remedy.KV_TYPE, "f16")
    with LoadedModel.load(converted("llama-unigram-bin"), n_ctx=5) as model:
        with pytest.raises(HybridError, match="holds 7 tokens, the context is 5"):
            import_session(model, session)
        seq = model.sequence()
        for _ in range(2):
            with pytest.raises(UsageError, match="nothing to export"):
                export_session(seq, tmp_path / "s")
            seq.prefill([5])
        with pytest.raises(StateError, match="cannot be written"):
            export_session(seq, tmp_path / "absent" / "s", whole=False)
    assert not any(tmp_path.iterdir()) and tokens_in(tmp_path) == 0


@pytest.mark.slow
@pytest.mark.skipif(not PEER, reason="PEER names no folder of llama.cpp's programs")
def test_llama_completion_goes_on_with_ours(model: LoadedModel, tmp_path: Path) -> None:
    sampler = Sampler(SamplingParams(temp=0), model.n_vocab)
    seq = model.sequence()
    run = generate(seq, model.tokenizer.encode(EXPECTED["prompt"]), sampler, max_tokens=1)
    for _ in run:
        pass
    seq.extra = {"pending": run.result.pending}
    seq.save(tmp_path / "state")
    export_session(seq, tmp_path / "session")
    seq.close()
    command = [f"{PEER}/llama-completion", "-m", model.path, "-no-cnv", "--temp", "0", "-t", "2", "-c", "128"]
    command += ["--no-display-prompt", "--prompt-cache", tmp_path / "session", "--prompt-cache-ro", "-n", "12"]
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, check=True)
    # it sometimes ends before its last lines are written
    theirs = done.stdout.decode("utf-8", "replace").strip()
    assert len(theirs) > 20 and goes_on(model, tmp_path / "state", "", 12).strip().startswith(theirs)


@pytest.mark.slow
@pytest.mark.skipif(not PEER, reason="PEER names no folder of llama.cpp's programs")
@pytest.mark.parametrize("name", ["minimax-text-01", "plamo2-full"])
def test_random_models_there_and_back(name: str, data_dir: Path, tmp_path: Path) -> None:
    """llama.cpp's state of a text equals ours, and is written again with the same bytes."""
    path, session = tmp_path / "m.gguf", tmp_path / "session"
    folder = random_checkpoints.write(random_checkpoints.CONFIGS[name], tmp_path / "model")
    convert(folder, path, outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    command = [f"{PEER}/llama-completion", "-m", path, "-no-cnv", "--temp", "0", "-t", "2", "-c", "128", "-fa", "off"]
    command += ["-ctk", "f32", "-ctv", "f32", "--prompt-cache", session, "-n", "1", "-p", EXPECTED["prompt"]]
    subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=120)
    with LoadedModel.load(path, n_ctx=128, n_seq_max=2, precision="exact", kv_type="f32") as model:
        seq, own = import_session(model, session), model.sequence()
        own.logits_of(list(seq.tokens))
        export_session(seq, tmp_path / "again", transposed=True)
        assert (tmp_path / "again").read_bytes() == session.read_bytes()
        ids = [*seq.pending, 300, 301, 302]
        theirs, ours = seq.logits_of(ids), own.logits_of(ids)
        error = np.abs(theirs - ours).max() / np.abs(ours).max()
        print(f"{name}: {error:.1e} of the largest logit")
        assert error < 1e-5
