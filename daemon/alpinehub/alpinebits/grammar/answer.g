# Common parts of the responses. A line with years in brackets applies to these protocol versions.

fragment root
  @Version! any
  @TimeStamp any

fragment status
  @Status {ALPINEBITS_SEND_FREEROOMS|ALPINEBITS_SEND_RATEPLANS|ALPINEBITS_SEND_INVENTORY} [2018-2022]
  @Status {ALPINEBITS_SEND_HANDSHAKE|ALPINEBITS_SEND_FREEROOMS|ALPINEBITS_SEND_RATEPLANS|ALPINEBITS_SEND_INVENTORY} [2024-]

# Pulls, guest requests.
fragment errors
  Errors
    Error+ mixed
      @Type! {13} [2017]
      @Type! {11|13} [2018-]
      @Code! natural [2017]
      @Code natural [2018-]
      like status

# Pushes of a hotel's data.
fragment push_errors
  Errors
    Error+ mixed
      @Type! {13} [2017]
      @Type! {11|13} [2018-]
      @Code! positive [2017]
      @Code positive [2018-]
      like status

fragment record
  @RecordID text [-2022]
  @RecordID text64 [2024-]

fragment warnings
  Warnings?
    Warning+ mixed
      @Type! positive
      like record
      like status

fragment push_answer
  like root
  either
    like push_errors
  or
    Success open
    like warnings

# The hotel that a message is about.
fragment hotel
  @HotelCode text [-2020]
  @HotelCode text16 [2022]
  @HotelCode! text16 [2024-]
  @HotelName text [-2022]
  @HotelName text128 [2024-]

OTA_PingRQ [2018-]
  like root
  EchoData : text

fragment shake
  @Status {ALPINEBITS_HANDSHAKE}

OTA_PingRS [2018-]
  like root
  like ping_2018 [2018]
  like ping_2020 [2020-]

fragment ping_2018
  Success open
  Warnings
    Warning mixed
      @Type {11}
      like shake
  EchoData : text

fragment ping_2020
  either
    Errors
      Error+ mixed
        @Type! {11|13}
        @Code positive
        like shake
  or
    Success open
    Warnings?
      Warning+ mixed
        @Type! positive
        like shake
    EchoData : text
