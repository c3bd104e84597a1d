"""The recipes that come with rekindle, with their command-line options."""

from fastapi import APIRouter
from pydantic import BaseModel

from rekindle_service.api.pagination import Page, PageParamsDep, paginate
from rekindle_service.jobs.recipe_catalog import RecipeOption, recipe_options, recipes

router = APIRouter(tags=["recipes"])


class Recipe(BaseModel):
    """A recipe; `name` goes into `recipe` of a job, the options into its `args`."""

    name: str
    title: str
    options: list[RecipeOption]


@router.get("/recipes")
def list_recipes(params: PageParamsDep) -> Page[Recipe]:
    """List the recipes that a job can run, with their options."""
    page = paginate(list(recipes().items()), params)
    return page.map(lambda item: Recipe(name=item[0], title=item[1], options=recipe_options(item[0])))
