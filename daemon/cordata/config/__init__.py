"""Configuration: one TOML file, frozen sections, secrets as credentials."""

from cordata.config.reader import DEFAULT_FILE as DEFAULT_FILE
from cordata.config.reader import Document as Document
from cordata.config.reader import build as build
from cordata.config.reader import choose_app as choose_app
from cordata.config.reader import find_file as find_file
from cordata.config.reader import open_document as open_document
from cordata.config.sections import Config as Config
