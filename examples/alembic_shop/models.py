"""Tables of the application, in two schemas."""

from __future__ import annotations

from sqlalchemy import MetaData, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    metadata = MetaData()


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    mail: Mapped[str] = mapped_column(Text)


class Invoice(Base):
    __tablename__ = "invoices"
    __table_args__ = ({"schema": "billing"},)

    id: Mapped[int] = mapped_column(primary_key=True)
    total: Mapped[int]
