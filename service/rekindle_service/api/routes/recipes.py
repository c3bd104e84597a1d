"""The recipes that come with rekindle, with their command-line options."""

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from rekindle.recipes.catalog import RECIPES
from rekindle_service.api.pagination import Page, PageParamsDep, paginate

router = APIRouter(tags=["recipes"])


class RecipeOption(BaseModel):
    """An option; `is_flag`: it takes no value. `choices`: the values that it accepts, empty where any is possible."""

    model_config = ConfigDict(from_attributes=True)

    name: str = Field(description="Without the dashes", examples=["batch-size"])
    help: str
    metavar: str | None
    choices: list[str]
    is_flag: bool
    default: str | None


class Recipe(BaseModel):
    """A recipe; `name` is the `recipe` of a job, the options are for its `args`."""

    model_config = ConfigDict(from_attributes=True)

    name: str = Field(examples=["ddp"])
    title: str
    options: list[RecipeOption]


@router.get("/recipes")
def list_recipes(params: PageParamsDep) -> Page[Recipe]:
    """List the recipes that a job can run, with their options."""
    return paginate(list(RECIPES.values()), params).map(Recipe.model_validate)
