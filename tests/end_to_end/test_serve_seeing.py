"""A server whose model sees: its limits, logs and other clients, pictures from URLs, and the command's options."""

import base64
import gc
import signal
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from http_server import WAIT, drawing_held, serving, started, until
from picture_site import PUBLIC, Network, moved, site_of, sized
from seeing_server import FIRST, SECOND, TEXT, Seeing, data_url, image, picture, text_of, tower_held, user

from hybrid.cli.serve import guards
from hybrid.cli.serve.log import Log, LogKind
from hybrid.infer import LoadedModel
from hybrid.infer.engine.pictures import Picture

pytestmark = pytest.mark.exhaustive

URL = data_url(picture(85))


def test_sizes_of_bodies(
    model_with_eyes: LoadedModel, files_of_eyes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "MOST_BODY", 10_000)
    monkeypatch.setattr(guards, "MOST_BODY_SEEING", 20_000)
    seeing = Seeing(model_with_eyes, files_of_eyes[1])
    try:
        with serving(model_with_eyes) as blind:
            blind.error(413, "/v1/completions", b" " * 10_001)
            blind.error(400, "/v1/completions", b" " * 10_000)
        seeing.error(413, "/v1/completions", b" " * 20_001)
        seeing.error(400, "/v1/completions", b" " * 20_000)
    finally:
        seeing.close()


def test_logs_have_no_pictures(
    model_with_eyes: LoadedModel, files_of_eyes: tuple[Path, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    said = ""
    for kind in (LogKind.JSON, LogKind.PLAIN):
        seeing = Seeing(model_with_eyes, files_of_eyes[1], log=Log(kind).request)
        try:
            seeing.ask([user(image(), TEXT)])
            seeing.ask([user(image(SECOND), TEXT)])
            seeing.error(400, "/v1/chat/completions", {"messages": [user(image(FIRST[:-99]))]})
            seeing.error(400, "/v1/chat/completions", {"messages": [user({**image(), "image_url": 5})]})
            unknown = {**image(), "base64": base64.b64encode(FIRST).decode()}
            assert "warnings" in seeing.ask([user(unknown, TEXT)])["usage"]
        finally:
            seeing.close()
        captured = capfd.readouterr()
        said += captured.out + captured.err
    assert said.count("/v1/chat/completions") >= 10
    for data in (FIRST, SECOND):
        text = base64.b64encode(data).decode()
        assert not any(text[at : at + 12] in said for at in range(0, len(text) - 12, 12))
    assert "base64" not in said.replace("messages[].content[].base64 is ignored", "")


# --- other clients ---
def test_clients_share_no_pictures(model_with_eyes: LoadedModel, files_of_eyes: tuple[Path, Path]) -> None:
    seeing = Seeing(model_with_eyes, files_of_eyes[1], keys=("one", "other"))
    try:

        def ask(key: str, **more: Any) -> dict[str, Any]:
            body = {"messages": [user(image(picture(80)), TEXT)], "max_tokens": 3, "temperature": 0, **more}
            headers = {"Authorization": f"Bearer {key}"}
            value: dict[str, Any] = seeing.http.post("/v1/chat/completions", json=body, headers=headers).json()
            return value

        first = ask("one")
        assert seeing.eyes.n_encoded == 1
        second = ask("other")
        assert seeing.eyes.n_encoded == 2 and second["usage"]["cache"]["reused"] == 0
        assert text_of(first) == text_of(second)
        ask("one", cache_salt="x")
        assert seeing.eyes.n_encoded == 3
        assert ask("one")["usage"]["cache"]["processed"] <= 1 and seeing.eyes.n_encoded == 3
    finally:
        seeing.close()


def test_a_bad_picture_ends_only_its_request(seeing_server: Seeing) -> None:
    body = {"messages": [user(image(), "Tell me more.")], "max_tokens": 60, "temperature": 0, "ignore_eos": True}
    want = seeing_server.http.post("/v1/chat/completions", json=body).json()
    answers: list[dict[str, Any]] = []

    def ask() -> None:
        answers.append(httpx.post(f"{seeing_server.url}/v1/chat/completions", json=body, timeout=WAIT).json())

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for data in (FIRST[:-500], b"none", FIRST[:40]):
        seeing_server.error(400, "/v1/chat/completions", {"messages": [user(image(data))]})
    for thread in threads:
        thread.join(WAIT)
    assert [text_of(answer) for answer in answers] == [text_of(want)] * 3


def test_texts_do_not_wait_for_pictures(model_with_eyes: LoadedModel, files_of_eyes: tuple[Path, Path]) -> None:
    seeing = Seeing(model_with_eyes, files_of_eyes[1])
    statuses: list[int] = []

    def ask() -> None:
        body = {"messages": [user(image(), TEXT)], "max_tokens": 1}
        statuses.append(httpx.post(f"{seeing.url}/v1/chat/completions", json=body, timeout=WAIT).status_code)

    threads = [threading.Thread(target=ask) for _ in range(42)]  # more than Starlette's threads
    try:
        with tower_held(seeing.eyes):
            for thread in threads:
                thread.start()
            until(lambda: seeing.router.n_running == len(threads))
            assert text_of(seeing.ask([user("Hello")]))
        for thread in threads:
            thread.join(WAIT)
    finally:
        seeing.close()
    assert len(statuses) == 42 and set(statuses) <= {200, 429} and seeing.eyes.n_encoded == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [user(image(picture(85)), TEXT)]}),
        ("/v1/chat/completions", {"messages": [user(image(picture(85)), TEXT)], "stream": True}),
        ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": URL}]}]}),
        ("/completion", {"prompt": {"prompt_string": "<__media__>", "multimodal_data": [URL.partition(",")[2]]}}),
    ],
)
def test_a_picture_that_takes_longer_than_timeout(
    model_with_eyes: LoadedModel, files_of_eyes: tuple[Path, Path], path: str, body: dict[str, Any]
) -> None:
    with closing(Seeing(model_with_eyes, files_of_eyes[1], timeout=0.3)) as seeing:
        with tower_held(seeing.eyes):
            error = seeing.error(504, path, body)
            assert error["message"] == "the answer took more than the 0.3 s of --timeout"
        until(lambda: seeing.router.n_running == 0)
        assert seeing.eyes.n_encoded == 0 and seeing.service.n_jobs == 0


def test_requests_that_wait_for_the_picture_of_another(
    model_with_eyes: LoadedModel, files_of_eyes: tuple[Path, Path]
) -> None:
    """They end when their time is up or their client goes, though another's picture is still being read."""
    first, second = ({"messages": [user(image(picture(seed)), TEXT)], "max_tokens": 1} for seed in (86, 87))
    with closing(Seeing(model_with_eyes, files_of_eyes[1])) as seeing:
        told: list[int] = []

        def ask(body: dict[str, Any]) -> None:
            told.append(httpx.post(f"{seeing.url}/v1/chat/completions", json=body, timeout=WAIT).status_code)

        patient = threading.Thread(target=ask, args=(first,))
        with tower_held(seeing.eyes) as begun:
            patient.start()
            assert begun.wait(WAIT)
            for body in (first, second):
                with pytest.raises(httpx.ReadTimeout):
                    httpx.post(f"{seeing.url}/v1/chat/completions", json=body, timeout=0.3)
                until(lambda: seeing.router.n_running == 1)
            seeing.router.settings = seeing.served.settings = replace(seeing.served.settings, timeout=0.3)
            for body in (first, second):
                assert "the 0.3 s of --timeout" in seeing.error(504, "/v1/chat/completions", body)["message"]
            until(lambda: seeing.router.n_running == 1)
            assert patient.is_alive()
        patient.join(WAIT)
        assert told == [200] and seeing.eyes.n_encoded == 1


def test_a_cancelled_request_frees_its_pictures(model_with_eyes: LoadedModel, files_of_eyes: tuple[Path, Path]) -> None:
    seeing = Seeing(model_with_eyes, files_of_eyes[1], {"eyes": {"budget": 0}})  # the features of one picture are kept
    try:
        body = {
            "messages": [user(image(picture(90)), image(picture(91)), image(picture(92)))],
            "max_tokens": 900,
            "stream": True,
        }
        body["ignore_eos"] = True
        gone = threading.Event()

        def leave() -> None:
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(f"{seeing.url}/v1/chat/completions", json=body, timeout=httpx.Timeout(WAIT, read=0.3))
            gone.set()

        thread = threading.Thread(target=leave)
        with tower_held(seeing.eyes) as begun:
            thread.start()
            assert begun.wait(WAIT) and gone.wait(WAIT)
            until(lambda: not seeing.router.n_running)
        thread.join(WAIT)
        assert seeing.eyes.n_encoded == 0

        with (
            drawing_held(seeing),
            httpx.stream("POST", f"{seeing.url}/v1/chat/completions", json=body, timeout=WAIT) as response,
        ):
            assert response.status_code == 200, response.read()
            lines = response.iter_lines()  # a generator that goes closes the stream
            assert next(lines)
            until(lambda: any(len(job.result.ids) >= 5 for job in seeing.service.running))
            assert len(seeing.service.running[0].pictures) == 3
        until(lambda: not seeing.router.n_running and not seeing.service.n_jobs)
        kept = {id(run) for runs in seeing.eyes._kept.values() for run in runs}
        assert len(kept) == 1

        def held() -> int:
            gc.collect()
            return sum(type(one) is Picture and id(one) not in kept for one in gc.get_objects())

        others = held()
        until(lambda: held() <= others)
        ids = {tuple(one.ids) for one in gc.get_objects() if type(one) is Picture and id(one) not in kept}
        named = {tuple(p.ids) for p in seeing.eyes._kept.popitem()[1]}
        assert not ids & named
    finally:
        seeing.close()


# --- from the network ---
def test_pictures_from_urls(model_with_eyes: LoadedModel, files_of_eyes: tuple[Path, Path]) -> None:
    with site_of() as site:
        site.pages = {
            "/a.png": sized(FIRST),
            "/moved": moved("/a.png"),
            "/inside": moved("http://10.0.0.1/"),
            "/text": sized(b"no"),
        }
        network = Network(site, {"inside.example": ["127.0.0.1"], "both.example": [PUBLIC, "192.168.0.1"]})
        seeing = Seeing(model_with_eyes, files_of_eyes[1], {"fetcher": network.fetcher()})
        try:
            want = text_of(seeing.ask([user(image(), TEXT)]))

            def part(path: str) -> dict[str, Any]:
                return {"type": "image_url", "image_url": {"url": f"http://{path}"}}

            for path in ("pictures.example/a.png", "pictures.example/moved"):
                assert text_of(seeing.ask([user(part(path), TEXT)])) == want
            source = {"type": "image", "source": {"type": "url", "url": "http://pictures.example/a.png"}}
            answer = seeing.http.post(
                "/v1/messages", json={"messages": [user(source, TEXT)], "max_tokens": 6, "temperature": 0}
            ).json()
            assert answer["content"][0]["text"] == want and seeing.eyes.n_encoded == 1
            n = len(site.heads)
            for path, says in (
                ("inside.example/a.png", "no public address"), ("both.example/a.png", "no public address"),
                ("127.0.0.1/a.png", "no public address"), ("pictures.example:8080/a.png", "port 8080"),
                ("me:secret@pictures.example/a.png", "credentials"),
            ):  # fmt: skip
                error = seeing.error(400, "/v1/chat/completions", {"messages": [user(part(path))]})
                assert says in str(error["message"]) and error["param"] == "messages.0.content.0"
            assert len(site.heads) == n, "nothing was asked of them"
            for path, says in (
                ("pictures.example/inside", "no public"),
                ("pictures.example/text", "messages.0.content.0"),
            ):
                assert says in str(
                    seeing.error(400, "/v1/chat/completions", {"messages": [user(part(path))]})["message"]
                )
            assert {address for address, _ in network.reached} == {PUBLIC}
        finally:
            seeing.close()


# --- the command ---
def test_options_that_are_refused(
    files_of_eyes: tuple[Path, Path], files: dict[str, Path], refused: Callable[..., str]
) -> None:
    seeing, tower = files_of_eyes
    for model, more, says in (
        (seeing, ("--mmproj", "none.gguf"), "none.gguf: no such file"),
        (seeing, ("--mmproj", tower, "--no-mmproj"), "both given"),
        (seeing, ("--mmproj", seeing), "seeing-qwen35-vl.gguf"),
        (seeing, ("--image-host", "pictures.example:80"), "expected the name of a host, without a port"),
        (files["q8_0"], ("--mmproj", tower), "of another model"),
    ):
        code = 1 if more == ("--mmproj", seeing) else 2
        assert says in refused("serve", model, "--port", 0, *more, code=code), more


def test_the_command(files_of_eyes: tuple[Path, Path], program: Path) -> None:
    command = [program, "serve", files_of_eyes[0], "--port", "0", "-c", "128"]
    body = {"messages": [user(image(), TEXT)], "max_tokens": 2}
    with started([*command, "--image-host", "pictures.example"]) as (_, said):
        assert "takes pictures" in said
        url = said[said.index("API http") + 4 :].partition(",")[0]
        assert httpx.post(f"{url}/chat/completions", json=body, timeout=WAIT).status_code == 200
        for source, says in (("http://127.0.0.1/", "from where no pictures"), ("file:///etc/passwd", "neither data:")):
            part = {"type": "image_url", "image_url": {"url": source}}
            response = httpx.post(f"{url}/chat/completions", json={"messages": [user(part)]}, timeout=WAIT)
            assert response.status_code == 400 and says in response.json()["error"]["message"]
    with started([*command, "--no-mmproj", "--allow-image-urls"]) as (_, said):
        assert "takes pictures" not in said and "the model takes no pictures, so none are fetched" in said
        url = said[said.index("API http") + 4 :].partition(",")[0]
        response = httpx.post(f"{url}/chat/completions", json=body, timeout=WAIT)
        assert "this model takes no pictures" in response.json()["error"]["message"]


def test_pictures_are_known_after_a_restart(files_of_eyes: tuple[Path, Path], program: Path, tmp_path: Path) -> None:
    command = [program, "serve", files_of_eyes[0], "--port", "0", "-c", "256", "--state-dir", tmp_path / "kept"]
    question, more = user(image(picture(70)), TEXT), user("Tell me more.")
    n, answer = 0, ""
    for again in (False, True):
        messages = [question, {"role": "assistant", "content": answer}, more] if again else [question]
        with started(command) as (process, said):
            url = said[said.index("API http") + 4 :].partition("/v1,")[0]
            body = {"messages": messages, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
            found = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=WAIT).json()
            metrics = httpx.get(f"{url}/metrics", timeout=WAIT).text
            if again:
                assert "\nhybrid:pictures_total 0\n" in metrics, "its features are in a file"
                assert found["usage"]["cache"]["reused"] >= n + 7, found["usage"]
            else:
                assert "\nhybrid:pictures_total 1\n" in metrics
            n, answer = found["usage"]["prompt_tokens"], text_of(found)
            process.send_signal(signal.SIGINT)
            process.wait(WAIT)
