import pytest

from rekindle.rank.entrypoint import local_rank_arguments

DEFINED = b"parser.add_argument('--local_rank', type=int, default=-1)"
SECOND = {"LOCAL_RANK": "1", "WORLD_SIZE": "2"}


@pytest.mark.parametrize(
    ("source", "arguments", "environment", "added"),
    [
        (DEFINED, ["--lr", "1"], SECOND, ["--local_rank=1"]),
        (b"p.add_argument('--local-rank', '--local_rank')", [], SECOND, ["--local-rank=1"]),
        (b"@click.option('--local_rank')\ndef main(): pass", [], SECOND, ["--local_rank=1"]),
        (DEFINED, ["--local-rank=0"], SECOND, []),
        (DEFINED, [], {"LOCAL_RANK": "0", "WORLD_SIZE": "1"}, []),
        (DEFINED, [], {}, []),
        (DEFINED + b"; os.environ['LOCAL_RANK']", [], SECOND, []),
        (DEFINED + b"; parser.add_subparsers()", [], SECOND, []),
        (b"print('--local_rank')", [], SECOND, []),
        (b"--local_rank(", [], SECOND, []),
    ],
)
def test_a_script_that_defines_the_option_gets_it(source, arguments, environment, added):
    assert local_rank_arguments(source, arguments, environment) == added
