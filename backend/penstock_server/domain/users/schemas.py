"""What the API says about users, sessions and login codes."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field


class UserRead(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    id: UUID
    name: str
    role: Literal["admin", "member"]


class SessionCreate(BaseModel):
    code: str = Field(min_length=1, max_length=200)


class SessionRead(BaseModel):
    user: UserRead
    csrf_token: str


class LoginCodeRead(BaseModel):
    code: str
    expires_at: datetime
    login_url: str
