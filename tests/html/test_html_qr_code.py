import sys
from typing import Any

import pytest
import segno

from payres.html.html import qr_code


@pytest.mark.parametrize(
    "text", ["https://pay.example/alice", "$pay.example/käthe", "https://pay.example/" + "a" * 2000]
)
def test_code_is_an_image_with_a_label_and_a_white_border(text: str) -> None:
    code = qr_code(text, "QR code of <alice> & co")
    side = len(segno.make_qr(text, error="m").matrix) + 2 * 4
    assert f'viewBox="0 0 {side} {side}"' in code
    assert code.startswith('<svg role="img"')
    assert "<title>QR code of &lt;alice&gt; &amp; co</title>" in code


def test_code_of_a_text_is_drawn_once_for_all_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    draw = segno.make_qr

    def record(text: str, **options: Any) -> segno.QRCode:
        drawn.append(text)
        return draw(text, **options)

    monkeypatch.setattr(segno, "make_qr", record)
    first, *others = [qr_code("https://pay.example/pay/1", label) for label in ("QR code", "QR-Code", "QR code")]
    assert drawn == ["https://pay.example/pay/1"]
    assert others == [first.replace("QR code", "QR-Code"), first]


def test_drawing_takes_few_steps() -> None:
    """Trying all masks would take 19,000 calls, in which nobody else is served."""
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    qr_code("loads the library", "")
    sys.setprofile(count)
    try:
        qr_code("https://pay.example/pay/01a21617-67f5-767a-b5ea-21c930a890d1", "")
    finally:
        sys.setprofile(None)
    assert 1000 < calls < 10_000
