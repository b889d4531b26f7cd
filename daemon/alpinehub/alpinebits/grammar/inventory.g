# What a hotel is and has: pushed, and fetched.

OTA_HotelDescriptiveContentNotifRQ
  like root
  like contents

OTA_HotelDescriptiveContentNotifRS
  like push_answer

OTA_HotelDescriptiveInfoRQ
  like root
  HotelDescriptiveInfos
    HotelDescriptiveInfo
      like hotel

OTA_HotelDescriptiveInfoRS
  like root
  either
    like errors
  or
    Success open
    like warnings [2022-]
    like contents

fragment contents
  HotelDescriptiveContents
    HotelDescriptiveContent
      @HotelCityCode text [-2022]
      @HotelCityCode text8 [2024-]
      like hotel
      @AreaID text [2020-2022]
      @AreaID digits_8 [2024-]
      HotelInfo? anything [-2018]
      HotelInfo? [2020-]
        like hotel_info
      FacilityInfo?
        GuestRooms
          GuestRoom*
            like guest_room
      Policies? anything [-2018]
      Policies? [2020-]
        Policy+
          like policy
      AffiliationInfo? anything [-2018]
      AffiliationInfo? [2020-]
        Awards
          Award+
            @Rating! amount
            @Provider! text
            @RatingSymbol text
            @OfficialAppointmentInd boolean
      ContactInfos? anything [2017]
      ContactInfos? [2018]
        ContactInfo
          @Location {6}
          URLs
            URL+ : uri
              @ID! letters
      ContactInfos? [2020-]
        ContactInfo
          like contact_info
      TPA_Extensions? [2024-]
        AdditionalCodes?
          AdditionalCode* : text
            @Type! text

fragment html
  @TextFormat! {PlainText|HTML}
  @Language! language

fragment plain
  @TextFormat! {PlainText}
  @Language! language

fragment guest_room
  @Code! text8
  @MaxOccupancy positive
  @MinOccupancy positive
  @MaxChildOccupancy positive
  @ID text8
  TypeRoom? [-2022]
    like type_room
  TypeRoom [2024-]
    like type_room
  Amenities?
    Amenity+
      @RoomAmenityCode positive [-2022]
      @RoomAmenityCode amenity [2024-]
  MultimediaDescriptions?
    MultimediaDescription*
      @InfoCode positive{1|23|25}
      either
        TextItems?
          TextItem
            Description+ : text
              like plain [2017]
              like html [2018-]
      or
        ImageItems?
          ImageItem+
            @Category! positive
            ImageFormat
              like copyright
              URL : web
            Description* : text
              like plain

fragment type_room
  @StandardOccupancy positive
  @RoomClassificationCode natural
  @RoomID text [-2022]
  @RoomID text16 [2024-]
  @Size natural
  @RoomType room_kind [2018-]

fragment copyright
  @CopyrightNotice text [-2022]
  @CopyrightNotice text64 [2024-]

fragment origin
  like copyright
  @SourceID text [-2022]
  @SourceID text32 [2024-]

fragment medium
  like origin
  @Title text [-2022]
  @Title text64 [2024-]

fragment hotel_info
  @HotelStatusCode positive
  CategoryCodes?
    HotelCategory
      @Code text
      @CodeDetail! text [-2022]
      @CodeDetail! text128 [2024-]
  Descriptions?
    MultimediaDescriptions
      MultimediaDescription+
        @InfoCode positive{1|17|23|24}
        like media
  Position?
    @Altitude decimal
    @AltitudeUnitOfMeasureCode {3}
    @Latitude decimal
    @Longitude decimal
  Services?
    Service*
      @Code! positive [-2022]
      @Code! amenity [2024-]
      @MealPlanCode {12} [2022-]
      @ProximityCode positive
      @Included boolean
      Features?
        Feature*
          @AccessibleCode! positive

fragment media
  either
    TextItems?
      TextItem*
        like origin
        Description+ : text
          like html
  or
    ImageItems?
      ImageItem+
        @Category! positive{1|2|4|12|15|22}
        ImageFormat
          like medium
          @ApplicableStart day_of_any_year
          @ApplicableEnd day_of_any_year
          URL : web
        Description* : text
          like html
  or
    VideoItems?
      VideoItem+
        @Category! positive{1|2|4|12|20|22}
        VideoFormat
          like medium
          @ApplicableStart month_and_day
          URL : web
        Description* : text
          like html

fragment texts
  Text+ : text
    like html

fragment fee
  @CurrencyCode currency
  @DecimalPlaces positive
  Description
    like texts

fragment policy
  CancelPolicy?
    CancelPenalty
      PenaltyDescription
        like texts
  CheckoutCharges?
    CheckoutCharge
      @Amount amount
      like fee
  PetsPolicies?
    PetsPolicy
      @MaxPetQuantity natural
      @NonRefundableFee amount
      @ChargeCode positive
      like fee
  TaxPolicies?
    TaxPolicy
      @Amount amount
      @CurrencyCode currency
      @DecimalPlaces positive
      @Code {3}
      @ChargeFrequency {1}
      @ChargeUnit {21}
      TaxDescription
        like texts
  GuaranteePaymentPolicy?
    GuaranteePayment
      AcceptedPayments
        AcceptedPayment+
          like payment
      AmountPercent?
        @Percent! price
      Deadline?
        @OffsetDropTime! text
        @OffsetTimeUnit! text [-2022]
        @OffsetTimeUnit! {Year|Month|Week|Day|Hour|Second|FullDuration|Minute} [2024-]
        @OffsetUnitMultiplier! natural
  PolicyInfo?
    @MinGuestAge natural
    @CheckInTime time [-2022]
    @CheckOutTime time [-2022]
  StayRequirements?
    StayRequirement{1,2}
      @StayContext {Checkin|Checkout}
      @Start time
      @End time

fragment payment
  BankAcct?
    BankAcctName : text [-2022]
    BankAcctName : text64 [2024-]
    BankAcctNumber
      PlainText : text
    BankID
      PlainText : text
  Cash?
    @CashIndicator! boolean
  PaymentCard?
    @CardCode text
    CardType? : text

fragment contact_info
  @Location {6}
  Addresses?
    Address+
      @Language language
      AddressLine : text [-2022]
      AddressLine : text255 [2024-]
      CityName : text [-2022]
      CityName : text64 [2024-]
      PostalCode : text [-2022]
      PostalCode : text16 [2024-]
      StateProv?
        @StateCode! text
      CountryName?
        @Code! country
  Phones?
    Phone+
      @PhoneTechType! text
      @PhoneNumber! phone
  Emails?
    Email+ : text
      @EmailType! text
  URLs?
    URL+ : uri
      @ID {WEBSITE|TRUSTYOU|TRIPADVISOR|TWITTER|FACEBOOK|INSTAGRAM|YOUTUBE} [2020]
      @ID letters [2022-]
  CompanyName? : any
