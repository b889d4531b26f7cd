# Guest requests: fetched, acknowledged, pushed.

OTA_ReadRQ
  like root
  ReadRequests
    HotelReadRequest
      like hotel
      SelectionCriteria?
        @Start! date_time

OTA_NotifReportRQ
  like root
  Success open
  like record_warnings
  NotifDetails?
    HotelNotifReport
      like known_reservations

OTA_NotifReportRS
  like root
  either
    like errors
  or
    Success open
    like warnings [2022-]

OTA_ResRetrieveRS
  like root
  either
    like errors
  or
    Success open
    like list_warnings [2018-]
    ReservationsList
      HotelReservation*
        like reservation

OTA_HotelResNotifRQ [2018-]
  like root
  HotelReservations
    HotelReservation*
      like reservation

OTA_HotelResNotifRS [2018-]
  like root
  like taken [2018-2020]
  like taken_or_not [2022-]

fragment taken
  Success open
  like record_warnings
  like known_reservations

fragment taken_or_not
  either
    like errors
  or
    like taken

fragment list_warnings
  Warnings?
    Warning+ mixed
      @Type! positive
      @Code natural
      like record
      like status

# The guest requests that could not be processed.
fragment record_warnings
  Warnings?
    Warning+ mixed
      @Type! positive
      @Code! positive
      @RecordID! text [-2022]
      @RecordID! text64 [2024-]
      like status

fragment known_reservations
  HotelReservations
    HotelReservation+
      like unique_id

fragment unique_id
  UniqueID
    @Type! {14|15}
    @ID! text [-2022]
    @ID! text32 [2024-]

fragment reservation
  @CreateDateTime! date_time
  @LastModifyDateTime date_time [2022-]
  @ResStatus! {Requested|Reserved|Cancelled|Modify}
  @RoomStayReservation boolean [2022-]
  like unique_id
  RoomStays?
    RoomStay+
      like room_stay
  like services [2024-]
  ResGuests?
    ResGuest
      Profiles
        ProfileInfo
          Profile
            Customer
              like customer
  ResGlobalInfo?
    like global_info

fragment room_stay
  @RoomStayGroupID text [2022]
  @RoomStayGroupID text32 [2024-]
  RoomTypes?
    RoomType
      @RoomTypeCode text8
      @RoomClassificationCode natural
      @RoomType room_kind [2018-]
  RatePlans?
    RatePlan
      @RatePlanCode text [-2022]
      @RatePlanCode text64 [2024-]
      Commission?
        @Percent natural
        CommissionPayableAmount?
          @Amount amount
          @CurrencyCode {EUR} [-2018]
          @CurrencyCode currency [2020-]
      MealsIncluded?
        @MealPlanIndicator! {1|true}
        @MealPlanCodes! meal_plan
  like room_rates [2024-]
  GuestCounts?
    GuestCount+
      @Count! positive
      @Age natural
  TimeSpan
    @Start date
    @End date
    @Duration nights
    StartDateWindow?
      @EarliestDate! date
      @LatestDate! date
  Guarantee?
    GuaranteesAccepted
      GuaranteeAccepted
        PaymentCard
          @CardCode! letters_2
          @ExpireDate! digits_4
          CardHolderName : text [-2022]
          CardHolderName : text64 [2024-]
          CardNumber
            @EncryptedValue text
            @EncryptionMethod text
            PlainText? : text
  Total?
    @AmountAfterTax! amount
    @CurrencyCode! text [-2018]
    @CurrencyCode! currency [2020-]
  ServiceRPHs? [2024-]
    ServiceRPH+
      @RPH! digits_8

fragment room_rates
  RoomRates?
    RoomRate
      @RatePlanCode! text64
      @RoomTypeCode! text8
      Rates
        Rate+
          @EffectiveDate! date
          @ExpireDate date
          @ExpireDateExclusiveInd boolean
          @RateTimeUnit {Day}
          @UnitMultiplier positive
          Base+
            @AmountAfterTax price
            @CurrencyCode currency

fragment services
  Services?
    Service+
      @ID! text32
      @Type! {16}
      @ServiceCategoryCode! {BOARD|SUPPLEMENT|SPA|FOOD|BEVERAGE|ACTIVITY|TOURISTTAX|TRANSFER|OTHER}
      @ServiceInventoryCode! text16
      @ServiceRPH digits_8
      @ServicePricingType! {Per night|Per person|Per person per night|Per stay|Per use}
      @Inclusive! boolean
      @Quantity! positive
      ServiceDetails
        GuestCounts?
          GuestCount{1,99}
            @Age positive
            @Count! positive
        TimeSpan?
          @Start! date_time
          @End date_time
        Comments?
          Comment
            like plain_text
        Total
          @AmountAfterTax! amount
          @CurrencyCode! currency
        ServiceDescription?
          like plain_text

fragment plain_text
  Text : text
    @TextFormat! {PlainText}

fragment customer
  @Gender {Unknown|Male|Female}
  @BirthDate date
  @Language language
  PersonName
    NamePrefix? : text [-2022]
    NamePrefix? : text16 [2024-]
    GivenName : text [-2022]
    GivenName : text64 [2024-]
    Surname : text [-2022]
    Surname : text64 [2024-]
    NameTitle? : text [-2022]
    NameTitle? : text16 [2024-]
  Telephone*
    like telephone
  Email? : email
    @Remark {newsletter:no|newsletter:yes}
  Address?
    @Remark {catalog:no|catalog:yes}
    AddressLine? : text [-2022]
    AddressLine? : text255 [2024-]
    CityName? : text [-2022]
    CityName? : text64 [2024-]
    PostalCode? : text [-2022]
    PostalCode? : text16 [2024-]
    CountryName?
      @Code! country

fragment telephone
  @PhoneTechType! {1|3|5} [-2022]
  @PhoneTechType {1|3|5} [2024-]
  @PhoneNumber! phone

fragment global_info
  Comments?
    Comment{1,2} [-2022]
      @Name! {included services|customer comment}
      like comment
    Comment{1,3} [2024-]
      @Name! {included services|customer comment|additional info}
      like comment
  SpecialRequests? [2020]
    SpecialRequest
      @Name! {PETS}
      like special_text
  SpecialRequests? [2022-]
    SpecialRequest+
      @RequestCode! text [2022]
      @RequestCode! text16 [2024-]
      @CodeContext! {ALPINEBITS|HOTEL}
      like special_text
  like deposits [2024-]
  CancelPenalties?
    CancelPenalty
      PenaltyDescription
        Text : text
  HotelReservationIDs?
    HotelReservationID+
      @ResID_Type! positive
      @ResID_Value text [-2022]
      @ResID_Value text64 [2024-]
      @ResID_Source text [-2022]
      @ResID_Source text64 [2024-]
      @ResID_SourceContext text [-2022]
      @ResID_SourceContext text64 [2024-]
  Profiles?
    ProfileInfo
      Profile
        @ProfileType! {4}
        CompanyInfo
          like company
  BasicPropertyInfo open [2017]
  BasicPropertyInfo [2018-]
    like hotel

fragment comment
  either
    ListItem* : text
      @ListItem! natural
      @Language! language
  or
    Text? : text

fragment special_text
  Text? : any
    @TextFormat! {PlainText}

fragment deposits
  DepositPayments?
    GuaranteePayment+
      @Start any
      @GuaranteeCode any
      AcceptedPayments
        AcceptedPayment
          @GuaranteeTypeCode any
          @GuaranteeID any
          @PaymentTransactionTypeCode any
          either
            PaymentCard?
              @CardCode letters_2
              @ExpireDate month_year
              CardHolderName? : text64
              CardNumber?
                @Mask token_32
                @Token token_32
                @TokenProviderID text
          or
            BankAcct?
              BankAcctName? : text64
              BankAcctNumber
                @Mask token_32
                PlainText : digits_19
          or
            Voucher?
              @ElectronicIndicator! true
              @Identifier! text64
      AmountPercent?
        @Amount! price
        @CurrencyCode currency

fragment company
  CompanyName : text
    @Code! text
    @CodeContext! text
  AddressInfo?
    AddressLine : text [-2022]
    AddressLine : text255 [2024-]
    CityName : text [-2022]
    CityName : text64 [2024-]
    PostalCode : text [-2022]
    PostalCode : text16 [2024-]
    CountryName
      @Code! country
  TelephoneInfo?
    like telephone
  Email? : text
