"""The changes: what is replaced in `shop.py`, and what must come of it when its killed run is resumed."""

from __future__ import annotations

from typing import Any, NamedTuple


class Drift(NamedTuple):
    """The report that a change must lead to. `site` and `says` are parts of the site and of the first difference, `at`
    is the mark of the line that asked.
    """

    kind: str
    site: str | None
    says: str
    at: str | None = None


class Change(NamedTuple):
    """`edits` are pairs of old and new text. Without a drift the run goes on, and returns what `returns` says at these
    places of its result.
    """

    edits: list[tuple[str, str]]
    drift: Drift | None = None
    returns: dict[int, Any] = {}  # noqa: RUF012 - read only


_SCORE = "class Score:\n    points: int\n"
_RECEIPT = "    number: str\n    paid: int\n"
_ORDER = "class Order:\n    number: str\n    amount: int\n"
_GATHER = "asyncio.gather(\n        run.step(count, 1),\n        run.step(count, 2),\n    )"
_SLEEP = "    await run.sleep(0.01)  # at: sleep\n"
_CHILD = "await run.child(pack, order.number)"
_PICK = "[await run.step(pick, each) for each in range(2)]"
_CHARGE = "paid = await charge(order.number, order.amount) if score.points > 10 else None"
_LOOK = "        found = await look_up(order.number)  # at: look_up\n"
_WEIGH = "    score = await run.step(weigh, order)  # at: weigh\n"
_TOLD = 'told = await asyncio.create_task(tell(order.number), name="customer")'

CHANGES: dict[str, Change] = {
    # Renamed.
    "a step is renamed": Change(
        [("def weigh(", "def rate("), ("run.step(weigh, order)", "run.step(rate, order)")],
        Drift("missing", "0/weigh#1", "at 0/rate#1, which asks the same: was it renamed?", "weigh"),
    ),
    "a tool is renamed": Change(
        [("async def charge(", "async def bill("), ("await charge(", "await bill(")],
        Drift("missing", "0/charge#1", "at 0/bill#1, which asks the same: was it renamed?", "charge"),
    ),
    "a child workflow is renamed": Change(
        [("async def pack(", "async def box("), ("run.child(pack,", "run.child(box,")],
        Drift("missing", "0/pack#1", "a child run at 0/box#1, which asks the same", "child"),
    ),
    "a task is renamed": Change(
        [('name="customer"', 'name="client"')],
        Drift("missing", "0/customer/look_up#1", "a tool call at 0/client/look_up#1, of the same name"),
    ),
    "a scope is renamed": Change(
        [("run.scope(order.number)", "run.scope(order.amount)")],
        Drift("missing", "/look_up#1", "a tool call at 0/@", "look_up"),
    ),
    "a model is renamed": Change(
        [('models={"main"', 'models={"other"'), ('"main", messages', '"other", messages')],
        Drift("missing", "0/main#1", "an inference at 0/other#1", "infer"),
    ),
    "a model is gone": Change(
        [('models={"main"', 'models={"other"')],
        Drift("missing", "0/main#1", "function has ended, with NotRegistered: No model 'main'"),
    ),
    "another environment variable is read": Change(
        [('run.env("SHOP_HOME")', 'run.env("SHOP")')],
        Drift("missing", "0/env:SHOP_HOME#1", "an environment variable at 0/env:SHOP#1"),
    ),
    # Reordered.
    "two steps change places": Change(
        [
            (_WEIGH, ""),
            ("    async with run.scope", _WEIGH + "    async with run.scope"),
        ],
        Drift("missing", "0/weigh#1", "a step at 0/count/count#1"),
    ),
    "two tools change places": Change(
        [
            (f"    {_CHARGE}  # at: charge\n", ""),
            ("    await hold()", f"    {_CHARGE}  # at: charge\n    await hold()"),
        ],
        Drift("missing", "0/charge#1", "a tool call at 0/decline#1", "decline"),
    ),
    "steps side by side change places": Change(
        [
            (
                _GATHER,
                _GATHER.replace("count, 1", "count, 0").replace("count, 2", "count, 1").replace("count, 0", "count, 2"),
            )
        ],
        Drift("changed", "0/count/count#1", "$[0] was 1 and is 2"),
    ),
    "a child is started before the picking": Change(
        [
            (f"    boxed = {_CHILD}  # at: child\n", ""),
            ("    picked = ", f"    boxed = {_CHILD}  # at: child\n    picked = "),
        ],
        Drift("missing", "0/pick#1", "a child run at 0/pack#1", "child"),
    ),
    # Removed.
    "a step is removed": Change(
        [("await run.step(weigh, order)", "weigh(order)")],
        Drift("missing", "0/weigh#1", "a step at 0/count/count#1"),
    ),
    "a tool is removed": Change(
        [(f"    {_CHARGE}", "    paid = None")],
        Drift("missing", "0/charge#1", "the record has a tool call here", "decline"),
    ),
    "the tool under way is removed": Change(
        [("    await hold()  # at: hold\n", "")],
        Drift("missing", "0/hold#1", "a tool call at 0/ship#1"),
    ),
    "an inference is removed": Change(
        [
            ("answer.text", '"yes"'),
            ("answer = await run.infer(  # at: infer", "str("),
            (
                '        "main", messages=[{"role": "system", "content": "Be short."}, '
                '{"role": "user", "content": MESSAGE}], heat=0\n',
                "",
            ),
        ],
        Drift("missing", "0/main#1", "the record has an inference here, and the code asks for a timer", "sleep"),
    ),
    "a sleep is removed": Change(
        [(_SLEEP, "")],
        Drift("missing", "0/timer#1", "the record has a timer here"),
    ),
    "a child is removed": Change(
        [(_CHILD, '"box 7"')],
        Drift("missing", "0/pack#1", "a tool call at 0/customer/look_up#1"),
    ),
    "the code returns early": Change(
        [("    home = ", "    return [go]\n    home = ")],
        Drift("missing", "0/env:SHOP_HOME#1", "the workflow's function has ended"),
    ),
    # Added before the place that was reached.
    "a step is added": Change(
        [("    async with run.scope", "    await run.step(label, order.number)  # at: new\n    async with run.scope")],
        Drift("missing", "/look_up#1", "a step at 0/label#1", "new"),
    ),
    "an unsafe tool is added": Change(
        [(_SLEEP, _SLEEP + "    await ship(order.number)  # at: new\n")],
        Drift("missing", "0/env:SHOP_HOME#1", "a tool call at 0/ship#1", "new"),
    ),
    "the same tool is called once more, before": Change(
        [(f"    {_CHARGE}", f"    await charge(order.number, 1)  # at: new\n    {_CHARGE}")],
        Drift("changed", "0/charge#1", "$.amount was 42 and is 1", "new"),
    ),
    "an inference is added": Change(
        [(_SLEEP, '    await run.infer("main", messages=[])  # at: new\n' + _SLEEP)],
        Drift("missing", "0/timer#1", "an inference at 0/main#2", "new"),
    ),
    "a sleep is added": Change(
        [(_SLEEP, _SLEEP + "    await asyncio.sleep(0.5)  # at: new\n")],
        Drift("missing", "0/env:SHOP_HOME#1", "a timer at 0/timer#2", "new"),
    ),
    "a child is added": Change(
        [("    picked = ", '    await run.child(pack, "8")  # at: new\n    picked = ')],
        Drift("missing", "0/pick#1", "a child run at 0/pack#1", "new"),
    ),
    "a timeout is added": Change(
        [
            (_LOOK, "        async with asyncio.timeout(0.001):\n    " + _LOOK),
            ("    await run.sleep(0.01)", "    await run.sleep(0.02)"),
        ],
        Drift("changed", "0/timer#1", "a timer of 0.01 s is one of 0.02 s", "sleep"),
    ),
    # Asked otherwise.
    "an argument of a tool is another": Change(
        [("await charge(order.number, order.amount)", "await charge(order.number, order.amount + 1)")],
        Drift("changed", "0/charge#1", "$.amount was 42 and is 43", "charge"),
    ),
    "an argument of a step is another": Change(
        [("run.step(pick, each)", "run.step(pick, each + 1)")],
        Drift("changed", "0/pick#1", "$[0] was 0 and is 1", "pick"),
    ),
    "an argument has another type": Change(
        [("await charge(order.number, order.amount)", "await charge(order.number, float(order.amount))")],
        Drift("changed", "0/charge#1", "$.amount was 42 and is 42.0", "charge"),
    ),
    "the input of a child is another": Change(
        [(_CHILD, "await run.child(pack, order.number + '!')")],
        Drift("changed", "0/pack#1", '$ was "7" and is "7!"', "child"),
    ),
    "a child is detached": Change(
        [(_CHILD, "await run.child(pack, order.number, attached=False)")],
        Drift("changed", "0/pack#1", "the child was attached and is detached", "child"),
    ),
    "a tool has a new version": Change(
        [('effect="unsafe", version=1', 'effect="unsafe", version=2')],
        Drift("changed", "0/charge#1", "version 1 of charge is now version 2", "charge"),
    ),
    "a setting of a model is another": Change(
        [("heat=0\n", "heat=1\n")],
        Drift("changed", "0/main#1", "$.settings.heat was 0 and is 1", "infer"),
    ),
    "a message is another": Change(
        [('MESSAGE = "Is order 7 fine?"', 'MESSAGE = "Is order 8 fine?"')],
        Drift("changed", "0/main#1", '$.messages[1].content was "Is order 7 fine?" and is "Is order 8 fine?"', "infer"),
    ),
    "a message is added": Change(
        [('"content": MESSAGE}]', '"content": MESSAGE}, {"role": "user", "content": "Now!"}]')],
        Drift("changed", "0/main#1", "$.messages[2] was not there and is", "infer"),
    ),
    "a model is offered a tool": Change(
        [("heat=0\n", "heat=0, tools=[look_up]\n")],
        Drift("changed", "0/main#1", "$.tools[0] was not there and is", "infer"),
    ),
    "a sleep is longer": Change(
        [("run.sleep(0.01)", "run.sleep(3600)")],
        Drift("changed", "0/timer#1", "a timer of 0.01 s is one of 3600 s", "sleep"),
    ),
    "a step has become a tool": Change(
        [("def pick(", '@app.tool(effect="unsafe")\nasync def pick('), ("run.step(pick, each)", "pick(each)")],
        Drift("changed", "0/pick#1", "a step is now a tool call", "pick"),
    ),
    "a tool has become a step": Change(
        [
            ('@app.tool(effect="unsafe", version=1)\n', ""),
            ("await charge(order.number,", "await run.step(charge, order.number,"),
        ],
        Drift("changed", "0/charge#1", "a tool call is now a step", "charge"),
    ),
    # Types.
    "a field is added to a result": Change(
        [(_SCORE, _SCORE + '    why: str = ""\n')],
        Drift("type", "0/weigh#1", "A recorded 'Score' does not fit the class of that name: it now has 'why'", "weigh"),
    ),
    "a field is removed from a result": Change(
        [
            (_RECEIPT, "    number: str\n"),
            ("paid.paid", "paid.number"),
            ("return Receipt(number, amount)", "return Receipt(number)"),
        ],
        Drift("type", "0/charge#1", "A recorded 'Receipt' does not fit", "charge"),
    ),
    "a class is renamed": Change(
        [
            (_SCORE, _SCORE.replace("Score", "Mark")),
            ("def weigh(order: Order) -> Score:", "def weigh(order: Order) -> Mark:"),
            ("return Score(", "return Mark("),
        ],
        Drift("type", "0/weigh#1", "'Score'", "weigh"),
    ),
    "the input has another type": Change(
        [(_ORDER, _ORDER + "    gift: bool = False\n")],
        Drift("type", None, "A recorded 'Order' does not fit the class of that name: it now has 'gift'"),
    ),
    # Another way through the code.
    "what was side by side comes one after the other": Change(
        [(_GATHER, "[await run.step(count, 1), await run.step(count, 2)]")],
        Drift("missing", "0/count/count#1", "a step at 0/count#1, of the same name"),
    ),
    "what came one after the other is side by side": Change(
        [(_PICK, "await asyncio.gather(*(run.step(pick, each) for each in range(2)))")],
        Drift("missing", "0/pick#1", "a step at 0/pick/pick#1, of the same name"),
    ),
    "a loop runs once less": Change(
        [("for each in range(2)]", "for each in range(1)]")],
        Drift("missing", "0/pick#2", "a child run at 0/pack#1"),
    ),
    "a loop runs once more": Change(
        [("for each in range(2)]", "for each in range(3)]")],
        Drift("missing", "0/pack#1", "a step at 0/pick#3", "pick"),
    ),
    "a branch on a recorded value goes the other way": Change(
        [("score.points > 10", "score.points > 100")],
        Drift("missing", "0/charge#1", "a tool call at 0/decline#1", "decline"),
    ),
    "a failure is not caught any more": Change(
        [("except ToolFailed as error", "except KeyError as error"), ("error.message", "str(error)")],
        Drift("missing", "0/hold#1", "the workflow's function has ended, with ToolFailed: they said no"),
    ),
    # What makes no difference to the record.
    "a try is added": Change(
        [
            (
                "    await hold()  # at: hold\n",
                "    try:\n        await hold()\n    except ToolFailed:\n        return []\n",
            )
        ],
    ),
    "code is added after what was reached": Change(
        [("    shipped = await ship(order.number)", '    shipped = await ship(order.number) + "!"')],
        returns={4: "shipped 7!"},
    ),
    "an operation is added after what was reached": Change(
        [
            (
                "    shipped = ",
                "    shipped = await run.step(label, await run.child(pack, order.number))\n    shipped += ",
            )
        ],
        returns={4: "box box 7shipped 7"},
    ),
    "code is moved to a function that is awaited": Change(
        [
            ("    score = await run.step(weigh, order)", "    score = await scored(run, order)"),
            (
                "@app.workflow(version=1)",
                "async def scored(run, order):\n    return await run.step(weigh, order)\n\n\n@app.workflow(version=1)",
            ),
        ],
    ),
    "names that are not recorded are others": Change(
        [
            ("score = await", "mark = await"),
            ("score.points > 10", "mark.points > 10"),
            ("[score.points,", "[mark.points,"),
        ],
    ),
    "the body of a recorded step is another": Change([("return number * 10", "return number * 11")]),
    "a step is added beside others": Change(
        [
            ("    picked = ", "    beside = asyncio.create_task(run.step(label, 'beside'))\n    picked = "),
            ("    shipped = ", "    shipped = await beside\n    shipped += "),
        ],
        returns={4: "box besideshipped 7"},
    ),
}
