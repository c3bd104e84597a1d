"""The recipes that come with rekindle, with their command-line options."""

from fastapi import APIRouter
from pydantic import Field

from rekindle.recipes.catalog import RECIPES, RecipeOption
from rekindle_service.api.pagination import PageParamsDep, paginate
from rekindle_service.schemas.fields import Page, ResponseModel

router = APIRouter(tags=["recipes"])


class Recipe(ResponseModel):
    """A complete training that comes with rekindle."""

    name: str = Field(examples=["ddp"])
    """Name, for `recipe` of a job."""
    title: str
    """What it trains and how, in a few words."""
    options: list[RecipeOption]
    """Options, for `args` of a job."""


@router.get("/recipes")
def list_recipes(params: PageParamsDep) -> Page[Recipe]:
    """List the recipes that a job can run, with their options."""
    return paginate(list(RECIPES.values()), params).map(Recipe.model_validate)
