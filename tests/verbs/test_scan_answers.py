"""`scan policy= answers=`: answers that a policy writes, to the forecast from them."""

import pandas as pd
import pytest

from pessimal.tables import read_score_table
from pessimal.tracking.mirror import Mirror
from tiny_language_models import CHAT, checkpoint

pytestmark = pytest.mark.usefixtures("undrawn")

QUICK = ("tracking=off", "trainer.threads=1", "progress=false")


def test_from_what_a_policy_writes_to_its_forecast(command, tiny_checkpoint, tmp_path, monkeypatch):
    points = []
    monkeypatch.setattr(Mirror, "metrics", lambda _, values: points.append(values))
    policy = checkpoint(tmp_path / "talker", template=CHAT)
    scan = (
        *("scan", "model=auto", f"model.path={tiny_checkpoint}", "model.name=tiny"),
        *(f"policy={policy}", "prompts=greatest", "answer_tokens=2", *QUICK),
    )
    code, out, err = command(*scan, "answers=300")
    assert code == 0, err
    table = read_score_table(out.strip())
    assert table.provenance.candidates == "answers-of-talker"
    assert 250 < table.rows["drawn"].sum() <= 300
    assert table.states is None
    code, again, err = command(*scan, "answers=300")
    assert (code, again) == (0, out)
    assert "scanned already" in err
    points.clear()
    code, out, err = command("compare", "policy=talker", "analyses=[]", *QUICK[:1])
    assert code == 0, err
    path = pd.read_parquet(f"{out.split()[-1]}/tables/forecast.parquet")
    assert path["support"].min() >= 50
    assert path["unseen"].between(0, 1).all()
    tilts = path[path["way"] == "tilt"]
    curve = [(point["forecast/kl"], point["forecast/greatest/tiny"]) for point in points]
    assert curve == list(zip(tilts["kl"], tilts["gain"], strict=True))
    assert path["candidates"].eq("answers-of-talker").all()


@pytest.mark.parametrize("wrong", [["answers=10"]])
def test_answers_without_a_policy_and_beside_a_list_are_refused(command, wrong):
    code, _, err = command("scan", "plain-bpe-0", *wrong)
    assert code == 2
    assert "policy=NAME" in err
