/** What every page has, whatever it shows: the person in the header, the keys, and the palette. */
import "./account.js";
import "./palette.js";
