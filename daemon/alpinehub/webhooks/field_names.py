"""Names of fields of forms in four languages, and the target that each asks for.

Names are compared without case, accents and punctuation. Only unambiguous names are listed: a wrong
guess could book a guest for a wrong day.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_NO_WORD = re.compile(r"[\W_]+")
#: Suffix that a form builder adds to a key: `email_5139`, `first_name_abae`.
_SUFFIX = re.compile(r"_[0-9a-f]{4}\Z")
_NUMBER = re.compile(r"[ _]?[0-9]{1,2}\Z")

#: Target -> keys of fields that are no labels: a key may be each of _LABELS, too. A key is less
#: certain than a label: the author of the form chose it, often in English.
_KEYS = {
    "arrival": "date from, date arrivee",
    "departure": "date to, date depart",
    "dates": "date range",
    "nights": "naechte",
    "adults": "adult count, num adults",
    "children": "child ages, children age",
    "children_count": "children count, num children",
    "guests": "gaeste",
    "name": "fullname",
    "first_name": "firstname",
    "last_name": "lastname",
    "email": "mail, work email, user email",
    "phone": "work phone",
    "newsletter": "subscribe, newsletter consent",
    "consent": "consent marketing",
    "privacy": "gdpr, form field consent, terms",
    "prefix": "name prefix",
    "birth_date": "birthdate",
    "country": "staat",
    "state": "region",
    "language": "locale, lang",
    "external_id": "external id, submission id, request id, booking id",
    "gclid": "gclid",
    "fbclid": "fbclid",
}

#: Target -> labels of fields.
_LABELS = {
    "arrival": "Anreise, Anreisedatum, Ankunft, Ankunftsdatum, Anreisetag, von, Check-in, "
    "Arrivo, Data di arrivo, Data arrivo, Giorno di arrivo, dal, "
    "Arrivée, Date d'arrivée, Jour d'arrivée, du, "
    "Arrival, Arrival date, Date of arrival, Check-in date, Checkin, from",
    "departure": "Abreise, Abreisedatum, Abreisetag, bis, Check-out, "
    "Partenza, Data di partenza, Data partenza, Giorno di partenza, al, "
    "Départ, Date de départ, Jour de départ, au, "
    "Departure, Departure date, Date of departure, Check-out date, Checkout, to, until",
    "dates": "Zeitraum, Reisezeitraum, Aufenthalt, Reisedatum, Gewünschter Zeitraum, "
    "Periodo, Soggiorno, Periodo di soggiorno, Date, "
    "Période, Séjour, Dates de séjour, Dates du séjour, Dates souhaitées, "
    "Dates, Period, Stay, Travel dates, Dates of stay",
    "nights": "Nächte, Anzahl Nächte, Übernachtungen, Anzahl der Nächte, "
    "Notti, Numero di notti, Numero notti, Nuits, Nuitées, Nombre de nuits, "
    "Nights, Number of nights",
    "adults": "Erwachsene, Anzahl Erwachsene, Anzahl der Erwachsenen, Zahl der Erwachsenen, "
    "Adulti, Numero di adulti, Numero adulti, "
    "Adultes, Nombre d'adultes, Nb d'adultes, Adults, Number of adults",
    "children": "Alter der Kinder, Alter Kinder, Alter des Kindes, Alter Kind, Kinderalter, "
    "Alter der Kinder in Jahren, "
    "Età dei bambini, Età bambini, Età del bambino, Età bambino, "
    "Âge des enfants, Âges des enfants, Âge de l'enfant, Âge enfants, Âge enfant, "
    "Ages of children, Children's ages, Age of children, Age of child, Child age, Children ages",
    "children_or_ages": "Kinder, Bambini, Enfants, Children, Kids",
    "children_count": "Anzahl Kinder, Anzahl der Kinder, Zahl der Kinder, "
    "Numero di bambini, Numero bambini, Nombre d'enfants, Nb d'enfants, Number of children",
    "guests": "Personen, Anzahl Personen, Anzahl der Personen, Personenanzahl, "
    "Gäste, Anzahl Gäste, "
    "Persone, Numero di persone, Numero persone, Ospiti, Numero ospiti, "
    "Personnes, Nombre de personnes, Voyageurs, Nombre de voyageurs, "
    "Guests, Persons, People, Number of guests, Number of people, Number of persons",
    "name": "Name, Vor- und Nachname, Name und Vorname, Ihr Name, Vollständiger Name, "
    "Nome e cognome, Cognome e nome, Il tuo nome, "
    "Nom, Votre nom, Nom complet, Nom et prénom, Prénom et nom, "
    "Full name, Your name, First and last name",
    "first_name": "Vorname, Nome, Prénom, Votre prénom, First name, Given name",
    "last_name": "Nachname, Familienname, Zuname, Cognome, Nom de famille, "
    "Last name, Surname, Family name",
    "email": "E-Mail, E-Mail-Adresse, Mailadresse, E-Mail Adresse, Ihre E-Mail, "
    "Posta elettronica, Indirizzo e-mail, Indirizzo email, La tua email, "
    "Courriel, Adresse e-mail, Adresse mail, Adresse électronique, Votre e-mail, "
    "Email, Email address, Your email, E-mail address",
    "phone": "Telefon, Telefonnummer, Handy, Handynummer, Mobiltelefon, Mobilnummer, Tel, "
    "Telefono, Numero di telefono, Cellulare, Recapito telefonico, "
    "Téléphone, Numéro de téléphone, Téléphone portable, Portable, "
    "Phone, Phone number, Mobile, Mobile phone, Mobile number",
    "message": "Nachricht, Mitteilung, Wünsche, Ihre Nachricht, Anmerkungen, Bemerkungen, "
    "Kommentar, Sonderwünsche, Besondere Wünsche, "
    "Messaggio, Richieste, Il tuo messaggio, Note, Commento, Commenti, Richieste particolari, "
    "Votre message, Commentaire, Commentaires, Remarques, Souhaits, Demandes particulières, "
    "Message, Comments, Your message, Notes, Comment, Special requests, Requests",
    "newsletter": "Newsletter, Newsletter abonnieren, Newsletter anmelden, "
    "Ich möchte den Newsletter erhalten, Ja ich möchte den Newsletter erhalten, "
    "Iscrizione newsletter, Iscriviti alla newsletter, Desidero ricevere la newsletter, "
    "S'inscrire à la newsletter, Inscription à la newsletter, S'abonner à la newsletter, "
    "Je souhaite recevoir la newsletter, "
    "Subscribe to newsletter, Subscribe to the newsletter, Sign up for the newsletter",
    "consent": "Marketing, Werbung, Einwilligung Werbung, Einwilligung in Werbung, "
    "Einwilligung Marketing, Consenso marketing, "
    "Consentement marketing, Marketing consent",
    "privacy": "Datenschutz, Datenschutzerklärung, Einwilligung, AGB, Privacy, Consenso, "
    "Informativa privacy, Confidentialité, Politique de confidentialité, Protection des données, "
    "Consentement, RGPD, Conditions générales, Privacy policy, Consent, Terms and conditions",
    "room_type": "Zimmer, Zimmertyp, Zimmerkategorie, Zimmerwunsch, Unterkunft, "
    "Camera, Tipo di camera, Tipologia camera, Alloggio, "
    "Chambre, Type de chambre, Catégorie de chambre, Hébergement, "
    "Room, Room type, Room category, Accommodation",
    "prefix": "Anrede, Appellativo, Civilité, Salutation",
    "title": "Titel, Akademischer Titel, Titolo, Titre académique, Academic title",
    "gender": "Geschlecht, Sesso, Sexe, Gender",
    "birth_date": "Geburtsdatum, Geburtstag, Data di nascita, Date de naissance, "
    "Date of birth, Birth date, Birthday",
    "address": "Adresse, Straße, Straße und Hausnummer, Anschrift, Straße Nr, "
    "Indirizzo, Via, Rue, Rue et numéro, Address, Street, Street address",
    "city": "Ort, Stadt, Wohnort, Città, Località, Comune, Ville, Localité, City, Town",
    "postal_code": "PLZ, Postleitzahl, CAP, Codice postale, Code postal, "
    "Zip, Zip code, Postal code, Postcode",
    "country": "Land, Herkunftsland, Paese, Nazione, Stato, Pays, Pays de résidence, Country",
    "state": "Bundesland, Kanton, Provinz, Provincia, Canton, Province, State",
    "pets": "Haustier, Haustiere, Hund, Animali, Animali domestici, Cane, "
    "Animaux, Animaux de compagnie, Animal de compagnie, Chien, Pets, Pet, Dog",
    "language": "Sprache, Lingua, Langue, Language",
}  # fmt: skip

#: Keys that a form builder gives by the type of a field: they count only for a field without a
#: label.
VAGUE = {
    "number": "adults", "long answer": "message", "text area": "message", "textarea": "message",
    "multi line": "message", "multi line address": "address",
}  # fmt: skip
#: Keys of date fields that do not name arrival or departure.
DAY_KEYS = frozenset({"date picker", "date", "date time", "datepicker", "day"})


def plain(text: str) -> str:
    """A name for comparison: lower case, no accents, words separated by single spaces."""
    decomposed = unicodedata.normalize("NFKD", text[:200].casefold())
    bare = "".join(c for c in decomposed if not unicodedata.combining(c))
    return _NO_WORD.sub(" ", bare).strip()


def _table(names: dict[str, str]) -> dict[str, str]:
    return {plain(one): target for target, many in names.items() for one in many.split(",")}


_BY_KEY, _BY_LABEL = _table(_KEYS), _table(_LABELS)


def stem(key: str) -> str:
    """A key without the suffix of a form builder, which changes when the form is edited."""
    return _SUFFIX.sub("", key.removeprefix("field:").strip())


@lru_cache(2048)
def target_of_key(key: str) -> str:
    """The target of a field with this key; "" if the key is not known."""
    key = key.removesuffix("[]")
    for name in (key.removeprefix("field:"), stem(key)):
        name = plain(name)
        for one in (name, _NUMBER.sub("", name)):
            found = _BY_KEY.get(one) or _BY_LABEL.get(one)
            if found:
                return found
    return ""


@lru_cache(2048)
def target_of_label(label: str) -> str:
    """The target of a field with this label; "" if the label is not known."""
    name = plain(label)
    return _BY_LABEL.get(name) or _BY_LABEL.get(_NUMBER.sub("", name), "")
