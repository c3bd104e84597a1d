"""The recipes that come with rekindle, with what their command lines take."""

from dataclasses import asdict

from fastapi import APIRouter
from pydantic import BaseModel, Field

from rekindle_service.api.pieces import WantedPiece
from rekindle_service.api.schemas import Page
from rekindle_service.jobs.recipe_catalog import recipe_options, recipes

router = APIRouter(tags=["recipes"])


class RecipeOption(BaseModel):
    """``is_flag``: it stands alone, without a value. ``choices``: the values it takes, empty where any will do."""

    name: str = Field(description="Without the dashes", examples=["batch-size"])
    help: str
    metavar: str | None
    choices: list[str]
    is_flag: bool
    default: str | None


class Recipe(BaseModel):
    """``name`` goes into ``recipe`` of a job, the options into its ``args``."""

    name: str = Field(examples=["ddp"])
    title: str
    options: list[RecipeOption]


@router.get("/recipes")
def list_recipes(piece: WantedPiece) -> Page[Recipe]:
    """The recipes that a job may name, with their options."""
    told, following = piece.of(list(recipes().items()))
    items = [Recipe(name=name, title=title, options=_options(name)) for name, title in told]
    return Page(items=items, next=following)


def _options(recipe: str) -> list[RecipeOption]:
    return [RecipeOption.model_validate(asdict(option)) for option in recipe_options(recipe)]
