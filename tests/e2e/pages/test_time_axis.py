"""The time axis of a job's page."""

from playwright.sync_api import Page

_VIEWS = """async (hashes) => {
    const { formatView, parseView } = await import("/static/job/axis/view-state.js");
    return hashes.map((hash) => {
        const view = parseView(hash);
        return view && formatView(view);
    });
}"""


def test_a_url_holds_the_view_and_nonsense_in_it_is_ignored(page: Page) -> None:
    whole = "#t=1700000000.25&from=10&to=20.5&by=step&attempt=2&rank=1&stream=stderr"
    cases = {
        whole: whole,
        "#rank=3": "#rank=3",
        "#t=-1&rank=1.5&attempt=x&stream=/etc/passwd&by=moon&from=1&<b>=2": "",
        "#from=20&to=10&t=1e999&rank=63": "#rank=63",
        "#log/0/stderr/1/end": None,
        "#log": None,
        "": None,
    }
    assert page.evaluate(_VIEWS, [*cases]) == [*cases.values()]
    heard = page.evaluate(
        """async () => {
            const { getView, onView, setView } = await import("/static/job/axis/view-state.js");
            const heard = [];
            onView(({ t, rank }, before) => heard.push([t, rank, before.t]));
            setView({ t: 5 });
            setView({ t: 5 });
            setView({ rank: 1 });
            heard.push(location.hash, getView().rank);
            location.hash = "#t=7";
            await new Promise((resolve) => onView(resolve));
            return heard;
        }"""
    )
    assert heard == [[5, None, None], [5, 1, 5], "#t=5&rank=1", 1, [7, None, 5]]
