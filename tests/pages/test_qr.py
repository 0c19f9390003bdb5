import re

import pytest
import segno

from payres.pages.qr import qr_code


@pytest.mark.parametrize(
    "text", ["https://pay.example/alice", "$pay.example/käthe", "https://pay.example/" + "a" * 2000]
)
def test_code_has_the_dark_modules_of_its_text_and_a_white_border(text: str) -> None:
    code = qr_code(text, "QR code of “alice” & co")
    side = int(re.findall(r'viewBox="0 0 (\d+) \1"', code)[0])
    dark = set()
    for x, y, length in re.findall(r"M(\d+) (\d+)\.5h(\d+)", code):
        dark |= {(int(x) + n, int(y)) for n in range(int(length))}
    matrix = list(segno.make_qr(text, error="m").matrix_iter(border=4))
    assert len(matrix) == side
    assert dark == {(x, y) for y, row in enumerate(matrix) for x, is_dark in enumerate(row) if is_dark}
    assert 'aria-label="QR code of “alice” &amp; co"' in code
