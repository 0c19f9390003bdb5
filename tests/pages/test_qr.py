import pytest
import segno

from payres.pages.qr import qr_code


@pytest.mark.parametrize(
    "text", ["https://pay.example/alice", "$pay.example/käthe", "https://pay.example/" + "a" * 2000]
)
def test_code_is_an_image_with_a_label_and_a_white_border(text: str) -> None:
    code = qr_code(text, "QR code of <alice> & co")
    side = len(segno.make_qr(text, error="m").matrix) + 2 * 4
    assert f'viewBox="0 0 {side} {side}"' in code
    assert code.startswith('<svg role="img"')
    assert "<title>QR code of &lt;alice&gt; &amp; co</title>" in code
