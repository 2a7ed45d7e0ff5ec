"""general.*: names, sizes, the README's front matter, generation defaults, --metadata."""

import json

import pytest

from hybrid.convert import plan
from hybrid.convert.general import parse_name
from hybrid.quant.ggml.errors import CheckpointError, HybridError, UsageError


@pytest.mark.parametrize(
    ("name", "n_params", "expected"),
    [
        ("jamba-11m", 11_400_000, {"name": "Jamba 11m", "basename": "jamba", "size_label": "11M"}),
        ("jamba-dense", 10**9, {"name": "Jamba Dense"}),
        ("meta-llama/Llama-3.2-1B-Instruct", 1_236_000_000,
         {"name": "Llama 3.2 1B Instruct", "organization": "Meta Llama", "basename": "Llama-3.2", "size_label": "1B",
          "finetune": "Instruct"}),
        ("AI21-Jamba-Large-1.6", 0, {"name": "AI21 Jamba Large 1.6", "basename": "AI21-Jamba-Large", "version": "1.6"}),
        ("Jamba-v0.1", 0, {"name": "Jamba v0.1", "basename": "Jamba", "version": "v0.1"}),
        ("Mixtral-8x7B-Instruct-v0.1", 0, {"name": "Mixtral 8x7B Instruct v0.1", "basename": "Mixtral",
         "size_label": "8x7B", "finetune": "Instruct", "version": "v0.1"}),
        ("mamba-trained-bf16", 10**6, {"name": "Mamba Trained"}),
        ("falcon-mamba-7b-64k", 7 * 10**9, {"name": "Falcon Mamba 7b 64k", "basename": "falcon-mamba",
         "size_label": "7B", "finetune": "64k"}),
    ],
)  # fmt: skip
def test_names(name, n_params, expected):
    assert parse_name(name, n_params) == expected


def general(planned):
    return {
        key.removeprefix("general."): value for key, value in planned.metadata.items() if key.startswith("general.")
    }


def test_defaults(jamba):
    facts = general(plan(jamba().write()))
    assert facts["name"] == "Model" and facts["type"] == "model" and facts["quantization_version"] == 2
    assert facts["size_label"] == "3x207K"  # 280 755 weights less two of three experts


def test_name_in_the_cache_of_hugging_face(jamba, tmp_path):
    folder = jamba().write()
    snapshot = tmp_path / "models--ai21labs--Jamba-v0.1" / "snapshots" / "0123abcd"
    snapshot.parent.mkdir(parents=True)
    folder.rename(snapshot)
    facts = general(plan(snapshot))
    assert (facts["name"], facts["organization"], facts["version"]) == ("Jamba v0.1", "Ai21Labs", "v0.1")


def test_model_card(jamba):
    folder = jamba().write()
    (folder / "README.md").write_text(
        "---\nlicense: apache-2.0\nlicense_name: own\ntags:\n- mamba\n- no\npipeline_tag: text-generation\n"
        "language:\n- no\n- en\nbase_model: ai21labs/Jamba-v0.1\ndatasets: [org/data]\nauthor: Someone\n---\n# Text\n"
    )
    facts = general(plan(folder))
    assert facts["license"] == "apache-2.0" and facts["license.name"] == "own" and facts["author"] == "Someone"
    assert facts["tags"] == ["mamba", "no", "text-generation"] and facts["languages"] == ["no", "en"]
    assert facts["base_model.count"] == 1 and facts["base_model.0.name"] == "Jamba v0.1"
    assert facts["base_model.0.repo_url"] == "https://huggingface.co/ai21labs/Jamba-v0.1"
    assert facts["dataset.0.organization"] == "org"
    keys = list(facts)
    assert keys.index("license") < keys.index("base_model.count") < keys.index("tags") < keys.index("languages")


@pytest.mark.parametrize("text", ["---\n: : :\n  - [\n---\n", "---\nno end", "---\n- a list\n---\n", "\xff"])
def test_readmes_are_for_people(jamba, text):
    folder = jamba().write()
    (folder / "README.md").write_bytes(text.encode("latin-1"))
    assert general(plan(folder))["name"] == "Model"


def test_sampling_defaults(jamba):
    folder = jamba().write()
    (folder / "generation_config.json").write_text(
        json.dumps({"temperature": 0.6, "top_p": 0.95, "top_k": 20, "repetition_penalty": 1.05, "do_sample": True})
    )
    facts = general(plan(folder))
    assert {key: value for key, value in facts.items() if key.startswith("sampling.")} == {
        "sampling.top_k": 20,
        "sampling.top_p": 0.95,
        "sampling.temp": 0.6,
        "sampling.penalty_repeat": 1.05,
    }
    keys = list(facts)
    assert keys[:3] == ["architecture", "type", "sampling.top_k"]
    (folder / "generation_config.json").write_text(json.dumps({"temperature": "warm"}))
    with pytest.raises(CheckpointError, match=r'generation_config\.json: temperature = "warm" \(a string\)'):
        plan(folder)


def test_override(jamba, tmp_path):
    folder = jamba().write()
    (folder / "generation_config.json").write_text(json.dumps({"temperature": 0.6, "top_p": 0.9}))
    override = tmp_path / "m.json"
    override.write_text(
        json.dumps(
            {
                "general.name": "Other",
                "general.author": "Me",
                "general.sampling.temp": 0.2,
                "general.sampling.top_k": 7,
                "general.tags": ["x"],
                "general.base_models": [{"name": "Base"}],
                "general.note": True,
            }
        )
    )
    facts = general(plan(folder, metadata=override))
    assert (facts["name"], facts["author"], facts["tags"], facts["note"]) == ("Other", "Me", ["x"], True)
    assert facts["sampling.temp"] == 0.2 and facts["sampling.top_p"] == 0.9 and facts["sampling.top_k"] == 7
    assert facts["base_model.0.name"] == "Base"
    assert general(plan(folder, metadata=override, model_name="Third"))["name"] == "Third"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"name": "x"}, "does not begin with general"),
        ({"general.architecture": "x"}, "is set by the converter"),
        ({"general.file_type": 1}, "is set by the converter"),
        ({"general.name": 3}, r"general\.name = 3"),
        ({"general.tags": "x"}, "list of strings"),
        ({"general.tags": [1]}, "list of strings"),
        ({"general.base_models": ["x"]}, "list of objects"),
        ({"general.sampling.temp": "x"}, "finite number"),
        ({"general.sampling.top_k": 1.5}, "an integer"),
        ({"general.other": {"a": 1}}, "which a GGUF key cannot hold"),
        ([], "expected an object"),
    ],
)
def test_overrides_that_are_wrong(jamba, tmp_path, content, message):
    (tmp_path / "m.json").write_text(json.dumps(content))
    with pytest.raises(HybridError, match=message):
        plan(jamba().write(), metadata=tmp_path / "m.json")


def test_override_that_is_missing(jamba, tmp_path):
    with pytest.raises(UsageError, match="is not a file"):
        plan(jamba().write(), metadata=tmp_path / "m.json")
