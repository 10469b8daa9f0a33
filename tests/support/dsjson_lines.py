"""Lines of dsjson as Personalizer writes them, and logs made of them."""

import json
from pathlib import Path
from typing import Any

from windvane.evaluation.readers import open_log
from windvane.evaluation.readers.file_log import FileLog

LATTE = (
    '{"_label_cost":-1.0,"_label_probability":0.3333333432674408,"_label_Action":3,"_labelIndex":2,'
    '"o":[{"v":1.0,"EventId":"0000000","ActionTaken":false}],'
    '"Timestamp":"2021-04-07T16:40:25.0000000Z","Version":"1","EventId":"0000000","a":[3,2,1],'
    '"c":{"FromUrl":[{"Id":"rnc","Major":"engineering","Hobby":"hiking","FavoriteCharacter":"spock",'
    '"TopicClickProbability":{"Mocha":0.3,"Latte":0.5,"Cappuccino":0.2}}],'
    '"_multi":[{"_tag":"Mocha","i":{"constant":1,"id":"Mocha"},"j":[{"roast":"light"}]},'
    '{"_tag":"Latte","i":{"constant":1,"id":"Latte"},"j":[{"roast":"dark"}]},'
    '{"_tag":"Cappuccino","i":{"constant":1,"id":"Cappuccino"},"j":[{"roast":"dark"}]}]},'
    '"p":[0.33333334,0.33333334,0.33333334],"VWState":{"m":"N/A"},"_original_label_cost":-1.0}'
)
SLOTS = (
    '{"Timestamp":"2021-04-07T16:41:25.0000000Z","Version":"1","EventId":"0000001",'
    '"c":{"FromUrl":[{"weather":"raining"}],'
    '"_multi":[{"_tag":"Mocha","i":{"constant":1,"id":"Mocha"},"j":[{"roast":"light"}]},'
    '{"_tag":"Latte","i":{"constant":1,"id":"Latte"},"j":[{"roast":"dark"}]},'
    '{"_tag":"Cappuccino","i":{"constant":1,"id":"Cappuccino"},"j":[{"roast":"dark"}]},'
    '{"_tag":"Americano","i":{"constant":1,"id":"Americano"},"j":[{"roast":"light"}]}],'
    '"_slots":[{"_id":"MainArticle","sj":[{"size":"Large","position":"Center"}]},'
    '{"_id":"SideBar","sj":[{"size":"Medium","position":"Right"}]}]},'
    '"_outcomes":[{"_label_cost":-0.5,"_id":"MainArticle","_a":[1,0,2,3],"_p":[0.25,0.25,0.25,0.25],'
    '"_o":[{"v":0.5,"EventId":"0000001","Index":"MainArticle","ActionTaken":false}],'
    '"_original_label_cost":-0.5},'
    '{"_label_cost":-0.4,"_id":"SideBar","_a":[3,2,0],"_p":[0.33333334,0.33333334,0.33333334],'
    '"_o":[{"v":0.4,"EventId":"0000001","Index":"SideBar","ActionTaken":false}],'
    '"_original_label_cost":-0.4}],"_ba":[1,2],"VWState":{"m":"N/A"}}'
)


def change(line: str, **fields: object) -> str:
    """A line with other values at its top; None removes a key."""
    event: dict[str, Any] = json.loads(line) | fields
    return json.dumps({key: value for key, value in event.items() if value is not None})


def open_lines(folder: Path, *lines: str) -> FileLog:
    path = folder / "log.json"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return open_log([path])
